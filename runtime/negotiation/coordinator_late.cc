// How the coordinator reports, expires and answers calls that some ranks have announced and others
// lack for too long. Progress token holder only.
#include "runtime/base/check.h"
#include "runtime/negotiation/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace kolo {
namespace {

std::int64_t whole_seconds(Coordinator::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

}  // namespace

std::string Coordinator::who_is_missing(const Pending& pending) const {
  std::vector<int> ready;
  for (int rank = 0; rank < size_; ++rank) {
    if (pending.is_ready[static_cast<std::size_t>(rank)]) ready.push_back(rank);
  }
  const std::vector<int> missing = this->missing(pending);
  if (missing.empty())
    return fmt::format("submitted by all, as other members of its group are not");
  return fmt::format("submitted by {}, missing on {}", rank_list(ready), rank_list(missing));
}

std::vector<int> Coordinator::only_in(const Pending& here, const Pending& there) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < joined_.size(); ++rank)
    if (!joined_[rank] && here.is_ready[rank] && !there.is_ready[rank])
      ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::string Coordinator::what_instead(const Pending& pending, Clock::time_point latest) const {
  const PendingMap::value_type* first = nullptr;
  std::vector<int> ranks;
  for (const auto& other : pending_) {
    const auto key = [](const PendingMap::value_type& each) {
      return std::tie(each.second.since, each.first);
    };
    if (other.second.since > latest || (first != nullptr && key(*first) < key(other))) continue;
    std::vector<int> only_there = only_in(other.second, pending);
    if (only_there.empty() || only_in(pending, other.second).empty()) continue;
    first = &other;
    ranks = std::move(only_there);
  }
  if (first == nullptr) return {};
  return fmt::format("; {} {} submitted {} instead", rank_list(ranks),
                     ranks.size() == 1 ? "has" : "have", tensor(first->first));
}

Error Coordinator::timed_out(const std::string& name, const Pending& pending,
                             Clock::time_point now) const {
  return KOLO_ERROR(kTimeout,
                    "{}: {} after {} s{}; every rank must submit it (KOLO_OPERATION_TIMEOUT)",
                    tensor(name, pending), who_is_missing(pending),
                    whole_seconds(now - pending.since), what_instead(pending, now));
}

void Coordinator::give_up(const std::string& name, const Pending& pending, Error error,
                          Clock::time_point now) {
  GivenUp call{
      .step = pending.steps.empty() ? 0 : pending.steps.rbegin()->first, .by = {}, .at = now};
  for (int rank = 0; rank < size_; ++rank)
    if (pending.is_ready[static_cast<std::size_t>(rank)]) call.by.push_back(rank);
  for (const int rank : missing(pending)) {
    Late& late = late_[name];
    late.resize(static_cast<std::size_t>(size_));
    late[static_cast<std::size_t>(rank)].push_back(call);
  }
  decide(name, pending, std::move(error));
}

Error Coordinator::too_late(int rank, const std::string& name, const GivenUp& call,
                            std::size_t behind, Clock::time_point now) const {
  const std::string by = rank_list(call.by);
  const std::string what = call.step == 0
                               ? fmt::format("is {} call{} behind {}, which gave this one up",
                                             behind, behind == 1 ? "" : "s", by)
                               : fmt::format("is at step {}, which {} gave up", call.step, by);
  return KOLO_ERROR(
      kTimeout,
      "{}: {} {} {} s ago (KOLO_OPERATION_TIMEOUT): it has failed on all ranks, and they meet "
      "again once {} has caught up",
      tensor(name), rank_list({rank}), what, whole_seconds(now - call.at), rank_list({rank}));
}

bool Coordinator::answer_late(int rank, const Request& request, Clock::time_point now) {
  const auto it = late_.find(request.name);
  if (it == late_.end()) return false;
  auto& calls = it->second[static_cast<std::size_t>(rank)];
  const auto call = std::find_if(calls.begin(), calls.end(), [&](const GivenUp& given_up) {
    return given_up.step == 0 || request.step == 0 || given_up.step == request.step;
  });
  const bool is_late = call != calls.end();
  if (is_late) {
    Response response{request.name, request.signature, 0, std::nullopt};
    response.error = too_late(rank, request.name, *call, calls.size(), now);
    for (int other = 0; other < size_; ++other)
      if (other != rank) response.missing.push_back(other);
    decided_.push_back(std::move(response));
  }
  // Drop the calls before the match. Without a match drop all: the rank has skipped them, or counts
  // its steps anew.
  calls.erase(calls.begin(), is_late ? std::next(call) : calls.end());
  if (nobody_is(it->second)) late_.erase(it);
  return is_late;
}

void Coordinator::give_up_group(const std::string& name, const std::string& failed,
                                const Error& error, Clock::time_point now) {
  const auto group = groups_.extract(name);
  if (group.empty()) return;
  for (const std::string& member : group.mapped().members) {
    auto node = pending_.extract(member);
    if (node.empty()) continue;
    Error why = error;
    why.message = fmt::format("{}: not done, since '{}' of its group '{}' has failed: {}",
                              tensor(member), failed, name, error.message);
    give_up(member, node.mapped(), std::move(why), now);
  }
}

void Coordinator::expire(Clock::time_point now, Clock::duration timeout) {
  if (joined_count_ > 0 && now - last_sign_ >= timeout) {
    end_join(KOLO_ERROR(kTimeout,
                        "{}; each rank must call it, or go on submitting (KOLO_OPERATION_TIMEOUT)",
                        who_has_joined(now)));
  }
  std::vector<std::tuple<Clock::time_point, std::string, Error>> late;
  for (const auto& [name, pending] : pending_) {
    if (now - pending.since >= timeout)
      late.emplace_back(pending.since, name, timed_out(name, pending, now));
  }
  std::sort(late.begin(), late.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  for (const auto& [since, name, error] : late) {
    const auto it = pending_.find(name);
    if (it == pending_.end()) continue;
    const Pending pending = std::move(it->second);
    pending_.erase(it);
    give_up(name, pending, error, now);
    for (const Variant& variant : pending.variants)
      give_up_group(variant.signature.group, name, error, now);
  }
}

std::vector<std::string> Coordinator::stalled(Clock::time_point now, Clock::duration age) {
  std::vector<std::string> lines;
  if (joined_count_ > 0 && !join_reported_ && now - last_sign_ >= age) {
    join_reported_ = true;
    lines.push_back(who_has_joined(now));
  }
  // Report tensors that wait for the same ranks in one line: most likely they have one cause.
  std::map<std::vector<bool>, std::vector<PendingMap::pointer>> late;
  const Clock::time_point latest = now - std::min<Clock::duration>(age, kLateAndOther);
  for (auto& entry : pending_)
    if (entry.second.since <= latest) late[entry.second.is_ready].push_back(&entry);
  for (auto& [is_ready, entries] : late) {
    const auto first =
        std::min_element(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
          return std::tie(a->second.since, a->first) < std::tie(b->second.since, b->first);
        });
    const auto& [name, pending] = **first;
    const std::string instead = what_instead(pending, latest);
    if (now - pending.since < age && instead.empty()) continue;
    const auto is_new = [](const auto* entry) { return !entry->second.reported; };
    if (std::none_of(entries.begin(), entries.end(), is_new)) continue;
    for (auto* const entry : entries) entry->second.reported = true;
    const std::size_t more = entries.size() - 1;
    lines.push_back(fmt::format("{}{} waited for {} s: {}{}", tensor(name, pending),
                                more == 0 ? " has" : fmt::format(" and {} more have", more),
                                whole_seconds(now - pending.since), who_is_missing(pending),
                                instead));
  }
  return lines;
}

}  // namespace kolo
