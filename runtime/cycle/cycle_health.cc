// The cycle's own checks: ranks that are lost or have left while something waits for them, and
// deadlines. Progress token holder.
#include "runtime/cycle/cycle.h"

#include <chrono>
#include <vector>

namespace kolo {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{200};
// A rank that did not check for so long was not running: stopped by Ctrl-Z, or in a debugger.
constexpr std::chrono::seconds kStopped{4};

}  // namespace

void Cycle::check_health() {
  const auto now = Clock::now();
  const bool check_time = now >= next_check_;
  if (check_time) {
    next_check_ = now + kCheckInterval;
    // The stop is no operation's fault: each gets its whole timeout again.
    if (looked_at_ && now - *looked_at_ >= kStopped)
      deadlines_from_ = now + std::chrono::seconds(config_.operation_timeout_s);
    looked_at_ = now;
    arena_.drop_unused(now);
    for (const int rank : watch_.exited()) {
      drain_control_messages();
      // In a large world, a rank that is not concerned() may have left without telling us. If it
      // was lost, other ranks report it.
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
    // Best effort: the transport reports ranks that cannot be reached.
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
      if (operation->works_completed()) continue;
      if (operation->mode() == SubmissionMode::kPointToPoint) {
        // If the peer has done its part of the message, it arrives; otherwise it never ends here.
        const int peer = operation->message_peer();
        if (!group.departures.cut_messages(*group.communicator.index_of(peer))) continue;
        note_failure({KOLO_ERROR(kPeerLost, "{}: rank {} has shut down before it was done",
                                 operation->describe(), peer),
                      peer});
        continue;
      }
      const auto gone = group.departures.missing_in(operation->mode(), operation->sequence());
      if (!gone) continue;
      const int rank = ranks[static_cast<std::size_t>(*gone)];
      const bool refused = group.departures.progress_of(*gone)->has_refused(operation->mode(),
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
    if (operation->works_completed()) continue;
    if (now - operation->started_at() < std::chrono::seconds(config_.operation_timeout_s)) continue;
    note_failure(
        {KOLO_ERROR(kTimeout, "{} did not end within {} s (KOLO_OPERATION_TIMEOUT): {}",
                    operation->describe(), config_.operation_timeout_s, operation->dump_state())});
  }
}

/// If nothing runs and the first planned operation does not begin, it may wait for a rank that has
/// left.
void Cycle::check_held_by_departure(Group& group) {
  if (group.planned.empty() || !group.running.empty() || !group.slots.settled()) return;
  const PlannedOperation& first = group.planned.front();
  const auto gone = group.departures.missing_in(first.mode, first.sequence);
  if (!gone) return;
  const int rank = group.communicator.ranks()[static_cast<std::size_t>(*gone)];
  note_failure({KOLO_ERROR(kPeerLost, "'{}'{}: rank {} has shut down and takes no part any more",
                           first.entries.front()->name, group.communicator.suffix(), rank),
                rank});
}

/// A running operation has a deadline. So has a planned one while nothing runs that it could wait
/// for.
void Cycle::check_held(Group& group, Clock::time_point now) {
  if (group.planned.empty() || !group.running.empty() || !group.slots.settled()) {
    group.held.reset();
    return;
  }
  const PlannedOperation& first = group.planned.front();
  if (!group.held || group.held->mode != first.mode || group.held->sequence != first.sequence)
    group.held = {first.mode, first.sequence, now};
  const std::chrono::seconds timeout(config_.operation_timeout_s);
  if (now - group.held->since < timeout) return;
  note_failure(
      {KOLO_ERROR(kTimeout,
                  "'{}'{} could not begin within {} s (KOLO_OPERATION_TIMEOUT): the device is not "
                  "done with what it was given before",
                  first.entries.front()->name, group.communicator.suffix(), timeout.count())});
}

/// A rank that left the world before it added the set never adds it, nor sends a shutdown notice to
/// it.
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
