#include "tools/run/roster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace kolo::run {
namespace {

/// "process 3", "processes 3, 4".
std::string name_of(const std::vector<int>& processes) {
  return fmt::format("process{} {}", processes.size() == 1 ? "" : "es", fmt::join(processes, ", "));
}

std::string slots_of(int slots) { return fmt::format("{} slot{}", slots, slots == 1 ? "" : "s"); }

/// The lowest number that is not among `taken`.
int lowest_free(const std::set<int>& taken) {
  int number = 0;
  while (taken.contains(number)) ++number;
  return number;
}

}  // namespace

void Roster::adopt(const std::vector<Place>& places) {
  for (const Place& place : places) {
    members_[place.process] = {place};
    next_process_ = std::max(next_process_, place.process + 1);
  }
}

void Roster::set_hosts(std::vector<Host> hosts) {
  hosts_ = std::move(hosts);
  std::erase_if(spent_, [this](const auto& item) { return find(item.first) == nullptr; });
}

std::string Roster::note_end(int process, End end, bool was_in_world, Time now) {
  const auto member = members_.find(process);
  if (member == members_.end()) return "";
  const std::string host = member->second.place.host;
  was_in_world = was_in_world || member->second.was_in_world;
  members_.erase(member);
  switch (end) {
    case End::kAsked:
      return "";
    case End::kDone:
      has_done_ = true;
      ++spent_[host];
      return "";
    case End::kNoLogin:
      return blacklist_.note_failure(host, now);
    case End::kCut:
    case End::kFailed:
      break;
  }
  if (restarts_left_ > 0) {
    --restarts_left_;
  } else {
    ++spent_[host];
  }
  return end == End::kFailed && was_in_world ? "" : blacklist_.note_failure(host, now);
}

Roster::Decision Roster::decide(const std::set<int>& world, bool grows, Time now) {
  Decision decision;
  for (auto& [process, member] : members_) {
    if (member.was_in_world || !world.contains(process)) continue;
    member.was_in_world = true;
    blacklist_.note_success(member.place.host);
  }
  if (is_over_) return decision;
  end_surplus(world, decision);
  start_missing(!world.empty(), grows, now, decision);
  await_least(grows, now, decision);
  return decision;
}

void Roster::end_surplus(const std::set<int>& world, Decision& decision) {
  std::map<std::string, int> used;
  std::vector<Member*> surplus;
  bool has_state = world.empty();  // a process that stays has the training's state
  for (auto& [process, member] : members_) {
    if (member.is_leaving) continue;
    const Host* const host = find(member.place.host);
    member.is_kept = member.is_kept && host == nullptr;
    if (host == nullptr || ++used[host->name] > host->slots) {
      surplus.push_back(&member);
    } else {
      has_state = has_state || world.contains(process);
    }
  }
  if (!has_state) {
    const auto kept = std::find_if(surplus.begin(), surplus.end(), [&](const Member* member) {
      return world.contains(member->place.process);
    });
    if (kept != surplus.end()) {
      Member& member = **kept;
      if (!std::exchange(member.is_kept, true)) {
        decision.lines.push_back(fmt::format(
            "process {} on {} stays until a process of another host has the training's state",
            member.place.process, member.place.host));
      }
      surplus.erase(kept);
    }
  }
  std::map<std::string, std::vector<int>> by_host;
  for (Member* const member : surplus) {
    member->is_leaving = true;
    decision.end.push_back(member->place.process);
    by_host[member->place.host].push_back(member->place.process);
  }
  for (const auto& [name, processes] : by_host) {
    const Host* const host = find(name);
    const std::string why =
        host == nullptr ? "is not listed any more" : "has " + slots_of(host->slots) + " now";
    decision.lines.push_back(
        fmt::format("{} {}; asking {} there to end", name, why, name_of(processes)));
  }
}

void Roster::start_missing(bool has_world, bool grows, Time now, Decision& decision) {
  // A new process would train alone, beside a program that does not wait for it.
  if (has_world && !grows) return;
  std::map<std::string, std::vector<int>> by_host;
  for (int left = missing(grows); left > 0; --left) {
    const Host* const host = choose(now);
    if (host == nullptr) break;
    decision.start.push_back(place_on(*host));
    by_host[host->name].push_back(decision.start.back().process);
  }
  for (const auto& [name, processes] : by_host)
    decision.lines.push_back(fmt::format("starting {} on {}", name_of(processes), name));
}

void Roster::await_least(bool grows, Time now, Decision& decision) {
  const int there = size();
  if (there >= limits_.least || has_done_) {
    if (std::exchange(waits_since_, std::nullopt))
      decision.lines.push_back(fmt::format("{} processes are there again", there));
    return;
  }
  const auto lack =
      fmt::format("{} of at least {} (--min-np) processes are there", there, limits_.least);
  if (!may_have_enough(grows)) {
    decision.gives_up = fmt::format("{}, and none may be started any more (--restarts); hosts: {}",
                                    lack, describe_hosts(now));
  } else if (!waits_since_) {
    waits_since_ = now;
    decision.lines.push_back(
        fmt::format("{}; waiting for more, up to {} s (--elastic-timeout); "
                    "hosts: {}",
                    lack, limits_.wait.count(), describe_hosts(now)));
  } else if (now - *waits_since_ >= limits_.wait) {
    decision.gives_up = fmt::format("{}, after {} s (--elastic-timeout); hosts: {}", lack,
                                    limits_.wait.count(), describe_hosts(now));
  }
}

int Roster::size() const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(),
                                        [](const auto& item) { return !item.second.is_leaving; }));
}

std::vector<Place> Roster::places() const {
  std::vector<Place> places;
  for (const auto& [process, member] : members_) places.push_back(member.place);
  return places;
}

bool Roster::has_other_host(const std::string& host) const {
  return limits_.least <= std::count_if(members_.begin(), members_.end(), [&](const auto& item) {
           return !item.second.is_leaving && item.second.place.host != host;
         });
}

bool Roster::may_have_enough(bool grows) const {
  if (has_done_ || finds_hosts_) return true;
  int more = 0;
  for (const Host& host : hosts_)
    if (!blacklist_.is_out(host.name)) more += std::max(0, free_slots(host));
  return size() + std::min(more, missing(grows)) >= limits_.least;
}

int Roster::missing(bool grows) const {
  int most = grows ? limits_.most : limits_.first;
  for (const auto& [host, slots] : spent_) most -= slots;
  const bool has_kept = std::any_of(members_.begin(), members_.end(),
                                    [](const auto& item) { return item.second.is_kept; });
  // The kept process leaves when another one has taken over its state.
  if (has_kept && size() == 1) return std::max(most - 1, 1);
  return most - size();
}

int Roster::free_slots(const Host& host) const {
  const auto taken = std::count_if(members_.begin(), members_.end(), [&](const auto& item) {
    return item.second.place.host == host.name;
  });
  const auto spent = spent_.find(host.name);
  return host.slots - static_cast<int>(taken) - (spent == spent_.end() ? 0 : spent->second);
}

const Host* Roster::find(const std::string& name) const {
  const auto host = std::find_if(hosts_.begin(), hosts_.end(),
                                 [&](const Host& candidate) { return candidate.name == name; });
  return host == hosts_.end() ? nullptr : &*host;
}

const Host* Roster::choose(Time now) const {
  const Host* chosen = nullptr;
  int fewest = 0;
  for (const Host& host : hosts_) {
    if (free_slots(host) <= 0 || !blacklist_.is_usable(host.name, now)) continue;
    if (limits_.mapping == Mapping::kSlot) return &host;
    const int taken = host.slots - free_slots(host);
    if (chosen != nullptr && taken >= fewest) continue;
    chosen = &host;
    fewest = taken;
  }
  return chosen;
}

Place Roster::place_on(const Host& host) {
  std::set<int> ranks;
  std::set<int> local_ranks;
  for (const auto& [process, member] : members_) {
    ranks.insert(member.place.rank);
    if (member.place.host == host.name) local_ranks.insert(member.place.local_rank);
  }
  Place place;
  place.rank = lowest_free(ranks);
  place.host = host.name;
  place.local_rank = lowest_free(local_ranks);
  place.local_size = std::max(std::min(host.slots, limits_.most), place.local_rank + 1);
  place.is_here = host.is_here;
  place.process = next_process_++;
  members_[place.process] = {place};
  return place;
}

std::string Roster::describe_hosts(Time now) const {
  if (hosts_.empty()) return "none";
  std::vector<std::string> hosts;
  for (const Host& host : hosts_) {
    const std::string state = blacklist_.state_of(host.name, now);
    hosts.push_back(fmt::format("{} ({}{}{})", host.name, slots_of(host.slots),
                                state.empty() ? "" : ", ", state));
  }
  return fmt::format("{}", fmt::join(hosts, ", "));
}

}  // namespace kolo::run
