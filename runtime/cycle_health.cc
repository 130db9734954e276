// What the cycle looks for by itself: ranks that are lost or have left while something waits for
// them, and deadlines. Progress token's holder.
#include "runtime/cycle.h"

#include <chrono>
#include <vector>

namespace kolo {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{200};
// Who did not look for so long did not run: a job that was stopped by Ctrl-Z, or is in a debugger.
constexpr std::chrono::seconds kStopped{4};

}  // namespace

void Cycle::check_health() {
  const auto now = Clock::now();
  const bool check_time = now >= next_check_;
  if (check_time) {
    next_check_ = now + kCheckInterval;
    // That time is no operation's fault: each has the whole of its own again.
    if (looked_at_ && now - *looked_at_ >= kStopped)
      deadlines_from_ = now + std::chrono::seconds(config_.operation_timeout_s);
    looked_at_ = now;
    arena_.drop_unused(now);
    for (const int rank : watch_.exited()) {
      hear_last_words();
      // In a large world who is not concerned was not told that it left; were it lost, others tell.
      if (groups_.world().departures.contains(rank) || !concerned(rank)) continue;
      on_peer_failed(rank, KOLO_ERROR(kPeerLost, "its process has ended without kolo::shutdown()"));
    }
  }
  if (check_time && heartbeat_.due(now)) check_heartbeats(now);
  for (const auto& group : groups_.all()) {
    if (group->is_member()) check_health(*group, now, check_time);
  }
}

void Cycle::check_heartbeats(Clock::time_point now) {
  Group& world = groups_.world();
  const auto findings = heartbeat_.look(
      now, [&](int rank) { return transport_.activity(rank); },
      [&](int rank) { return rank == world_.rank() || world.departures.contains(rank); });
  for (const int rank : findings.beat) {
    // Whom nothing reaches any more the transport reports by itself.
    static_cast<void>(world.control_plane.send(rank, MessageKind::kBeat, {}));
  }
  for (const auto& [rank, duration] : findings.silent) {
    on_peer_failed(
        rank, KOLO_ERROR(kPeerLost,
                         "nothing was heard of it for {} s (KOLO_HEARTBEAT_TIMEOUT): its host or "
                         "the network is down, or its process is stopped",
                         duration.count()));
  }
}

void Cycle::check_health(Group& group, Clock::time_point now, bool check_time) {
  const std::vector<int>& ranks = group.communicator.ranks();
  find_absent(group);
  check_joined(group);
  if (group.departures.any()) {
    for (const auto& operation : group.running) {
      if (operation->handed_out()) continue;
      if (operation->door() == Door::kPointToPoint) {
        // Who did its end of a message has done it; else the message never ends here.
        const int peer = operation->message_peer();
        if (!group.departures.cut_messages(*group.communicator.index_of(peer))) continue;
        note_failure({KOLO_ERROR(kPeerLost, "{}: rank {} has shut down before it was done",
                                 operation->describe(), peer),
                      peer});
        continue;
      }
      const auto gone = group.departures.missing_in(operation->door(), operation->sequence());
      if (!gone) continue;
      const int rank = ranks[static_cast<std::size_t>(*gone)];
      const bool refused = group.departures.progress_of(*gone)->has_refused(operation->door(),
                                                                            operation->sequence());
      note_failure({KOLO_ERROR(kPeerLost, "{}: rank {} has shut down and takes no part any more{}",
                               operation->describe(), rank,
                               refused ? "; its call had failed at once, for its arguments" : ""),
                    rank});
    }
    const auto gone =
        group.departures.missing_in_negotiation(group.controller.counters().agreements);
    if (gone && group.controller.has_pending()) {
      const int rank = ranks[static_cast<std::size_t>(*gone)];
      note_failure({KOLO_ERROR(kPeerLost, "{}: rank {} has shut down and will never submit it",
                               group.controller.describe_pending(), rank),
                    rank});
    }
  }
  check_slots(group, now);
  check_held_by_departure(group);
  if (!check_time) return;
  check_calls(group, now);
  if (now < deadlines_from_) return;
  group.point_to_point.expire(now);
  note(group.controller.check_timeouts(now, group.moves_collectives()));
  check_held(group, now);
  for (const auto& operation : group.running) {
    if (operation->handed_out()) continue;
    if (now - operation->started_at() < std::chrono::seconds(config_.operation_timeout_s)) continue;
    note_failure(
        {KOLO_ERROR(kTimeout, "{} did not end within {} s (KOLO_OPERATION_TIMEOUT): {}",
                    operation->describe(), config_.operation_timeout_s, operation->dump_state())});
  }
}

/// What does not begin though nothing runs may wait for a rank that has left.
void Cycle::check_held_by_departure(Group& group) {
  if (group.planned.empty() || !group.running.empty() || !group.slots.settled()) return;
  const PlannedOperation& first = group.planned.front();
  const auto gone = group.departures.missing_in(first.door, first.sequence);
  if (!gone) return;
  const int rank = group.communicator.ranks()[static_cast<std::size_t>(*gone)];
  note_failure({KOLO_ERROR(kPeerLost, "'{}'{}: rank {} has shut down and takes no part any more",
                           first.entries.front()->name, group.communicator.suffix(), rank),
                rank});
}

/// What runs has a deadline, and so has what is planned when nothing runs that it could wait for.
void Cycle::check_held(Group& group, Clock::time_point now) {
  if (group.planned.empty() || !group.running.empty() || !group.slots.settled()) {
    group.held.reset();
    return;
  }
  const PlannedOperation& first = group.planned.front();
  if (!group.held || group.held->door != first.door || group.held->sequence != first.sequence)
    group.held = {first.door, first.sequence, now};
  const std::chrono::seconds timeout(config_.operation_timeout_s);
  if (now - group.held->since < timeout) return;
  note_failure(
      {KOLO_ERROR(kTimeout, "'{}'{} could not begin within {} s (KOLO_OPERATION_TIMEOUT): {}",
                  first.entries.front()->name, group.communicator.suffix(), timeout.count(),
                  first.entries.front()->signature.on_device
                      ? "the device is not done with what it was given before"
                      : "the ranks do not come to agree on the costs of links; one is stuck "
                        "(KOLO_LINK_REFRESH=0 does without)")});
}

/// Whoever left the world before it had come to the set never adds it, nor says goodbye to it.
void Cycle::find_absent(Group& group) {
  const Departures& departures = groups_.world().departures;
  if (!group.added_in || !departures.any()) return;
  for (int i = 0; i < group.communicator.size(); ++i) {
    const int rank = group.communicator.ranks()[static_cast<std::size_t>(i)];
    const auto& progress = departures.progress_of(rank);
    if (progress && progress->agreements <= *group.added_in) group.departures.add_absent(i);
  }
}

}  // namespace kolo
