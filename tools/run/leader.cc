#include "tools/run/leader.h"

#include "tools/run/plan.h"
#include "tools/run/same_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace kolo::run {
namespace {

/// Interval between looks at the hosts and the world while no process ends.
constexpr std::chrono::milliseconds kLook(100);

}  // namespace

Leader::Leader(ElasticOptions options, std::vector<Host> hosts, TcpStoreServer& lobby)
    : options_(std::move(options)),
      hosts_(std::move(hosts)),
      lobby_(lobby),
      roster_(options_.limits, hosts_) {
  if (!options_.discovery.empty()) discovery_.emplace(options_.discovery);
}

void Leader::begin(const std::vector<Place>& places) {
  roster_.adopt(places);
  roster_.adopt(options_.others);
  // The first world is made when all have come.
  for (const Place& place : roster_.places()) lobby_.note_start(place.process, node_of(place));
}

Elastic::Orders Leader::orders() {
  Orders orders;
  const auto now = Clock::now();
  if (has_nodes()) look_at_nodes(orders);
  if (!has_changed_ && now < next_look_) return orders;
  has_changed_ = false;
  next_look_ = now + kLook;
  if (discovery_) look_for_hosts(now, orders);
  const std::vector<int> members = lobby_.members();
  const std::set<int> world(members.begin(), members.end());
  Roster::Decision decision = roster_.decide(world, lobby_.is_elastic(), now);
  for (const Place& place : decision.start) {
    lobby_.note_start(place.process, node_of(place));
    if (!start_elsewhere(place)) orders.start.push_back(place);
  }
  for (const int process : decision.end)
    if (!pass_on(process, kEndOrder)) orders.end.push_back(process);
  if (!orders.gives_up) orders.gives_up = std::move(decision.gives_up);
  std::move(decision.lines.begin(), decision.lines.end(), std::back_inserter(orders.lines));
  if (is_over_) {
    for (const Place& place : roster_.places())
      if (!world.contains(place.process) && !pass_on(place.process, kDismissOrder))
        orders.dismiss.push_back(place.process);
  } else if (lobby_.has_lost_world() && !orders.gives_up) {
    orders.gives_up =
        "no process that had the training's state is left; begin anew from a checkpoint";
  }
  kill_late(orders);
  return orders;
}

void Leader::kill_late(Orders& orders) {
  const std::vector<int> late = lobby_.late(options_.patience);
  if (late.empty()) return;
  for (const Place& place : roster_.places()) {
    const bool is_late = std::find(late.begin(), late.end(), place.process) != late.end();
    if (!is_late || !killed_.insert(place.process).second) continue;
    if (!pass_on(place.process, kKillOrder)) orders.kill.push_back(place.process);
    orders.lines.push_back(
        fmt::format("the others have waited {} s (--patience) for process {} on "
                    "{}; killing it",
                    options_.patience.count(), place.process, place.host));
  }
}

void Leader::look_for_hosts(Clock::time_point now, Orders& orders) {
  static_cast<void>(discovery_->keep(now));  // a failure is told below
  if (std::string failure = discovery_->take_failure(); !failure.empty())
    orders.lines.push_back(std::move(failure));
  auto hosts = discovery_->take_hosts();
  if (!hosts || *hosts == listed_) return;
  listed_ = *hosts;
  std::vector<Host> known = known_hosts(*std::move(hosts), options_.by_ssh, orders.lines);
  const auto here =
      std::find_if(known.begin(), known.end(), [](const Host& host) { return host.is_here; });
  const Status fits =
      here == known.end() ? Status() : check_number(std::min(here->slots, options_.limits.most));
  if (fits.ok()) {
    roster_.set_hosts(std::move(known));
  } else {
    orders.lines.push_back(fits.error().message + "; the last list of hosts stays");
  }
}

void Leader::take_child(pid_t pid, int status) {
  if (discovery_ && discovery_->take_end(pid, status)) has_changed_ = true;
}

bool Leader::note_end(const Process& process, Roster::End end, std::string& line) {
  const ProcessEnd ended = end_of(process, end);
  const bool was_in_world = lobby_.is_in_world(ended.process);
  lobby_.note_end(ended.process, end == Roster::End::kDone);
  return take_end(ended, process.place.host, was_in_world, line);
}

bool Leader::take_end(const ProcessEnd& ended, const std::string& on, bool was_in_world,
                      std::string& line) {
  has_changed_ = true;
  const bool is_done = ended.end == Roster::End::kDone;
  const int restarts = roster_.restarts_left();
  const std::string host = roster_.note_end(ended.process, ended.end, was_in_world, Clock::now());
  line = describe(ended, on);
  if (is_done && was_in_world && !is_over_) {
    is_over_ = true;
    roster_.finish();
    tell_all(over_frame());
  }
  if (is_done || ended.end == Roster::End::kAsked) {
    line = is_done || is_over_ ? "" : line + ", as it was asked to";
    return true;
  }
  const int left = roster_.size();
  const bool is_elastic = lobby_.is_elastic();
  // A host may be unfit for the program: the others can begin without it, and may have done so.
  const bool is_host =
      ended.end == Roster::End::kNoLogin ||
      (!was_in_world && (ended.end == Roster::End::kCut || roster_.has_other_host(on)));
  if (!is_elastic && !is_host) {
    line += was_in_world ? ", and the program has not called kolo::elastic::run()"
                         : " before it had met the others, and none of them has called "
                           "kolo::elastic::run()";
    return false;
  }
  if (is_over_) {
    line += fmt::format("; the other {} end the training without it", left);
    return left > 0;
  }
  if (lobby_.has_lost_world()) {
    line += ", the last that had the training's state; begin anew from a checkpoint";
    return false;
  }
  if (!roster_.may_have_enough(is_elastic)) {
    line += fmt::format(
        ", so {} of at least {} (--min-np) are left, and none may be started any "
        "more (--restarts); hosts: {}",
        left, options_.limits.least, roster_.describe_hosts(Clock::now()));
    return false;
  }
  line += fmt::format("; the other {} go on", left);
  if (roster_.restarts_left() < restarts)
    line += fmt::format(", and it is replaced ({} more restarts)", roster_.restarts_left());
  if (!host.empty()) line += "; " + host;
  return true;
}

}  // namespace kolo::run
