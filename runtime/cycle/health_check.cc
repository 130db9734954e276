#include "runtime/cycle/health_check.h"

#include "runtime/base/check.h"
#include "runtime/cycle/group_registry.h"
#include "runtime/cycle/peers.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{200};
// A rank that did not check for so long was not running: stopped by Ctrl-Z, or in a debugger.
constexpr std::chrono::seconds kStopped{4};
// A rank that is given up says so of its own pause, if that is as long, and as recent.
constexpr std::chrono::seconds kPause{1};
constexpr std::chrono::seconds kRecently{5};

// Lowest ranks that report operations that do not end; one may be the rank that is waited for.
constexpr int kReporters = 2;

/// Name of the tensor of an operation that has not begun.
std::string name_of(const Group& group, const PlannedOperation& plan) {
  return fmt::format("'{}'{}", plan.first().name, group.communicator().suffix());
}

}  // namespace

HealthCheck::HealthCheck(CycleContext& context, const Log& log, OnLost on_lost)
    : context_(context),
      log_(log),
      on_lost_(std::move(on_lost)),
      watch_(context.groups.world().communicator().world(), log),
      heartbeat_(std::chrono::seconds(context.config.heartbeat_timeout_s)),
      next_check_(Clock::now()) {}

std::chrono::seconds HealthCheck::operation_timeout() const {
  return std::chrono::seconds(context_.config.operation_timeout_s);
}

void HealthCheck::check(Clock::time_point now) {
  const bool check_time = now >= next_check_;
  if (check_time) {
    next_check_ = now + kCheckInterval;
    // The stop is no operation's fault: each gets its whole timeout again.
    if (looked_at_ && now - *looked_at_ >= kStopped) deadlines_from_ = now + operation_timeout();
    note_pause(now);
    looked_before_ = looked_at_.value_or(now);
    looked_at_ = now;
    context_.services.arena.drop_unused(now);
    for (const int rank : take_ended()) {
      context_.peers.drain_control_messages();
      // In a large world, a rank that is not concerned() may have left without telling us. If it
      // was lost, other ranks report it.
      if (context_.peers.has_left(rank) || !context_.peers.concerned(rank)) continue;
      on_lost_(rank, KOLO_ERROR(kPeerLost, "its process has ended without kolo::shutdown()"),
               Loss::kEnded);
    }
    if (heartbeat_.due(now)) check_heartbeats(now);
  }
  for (const auto& group : context_.groups.all())
    if (group->is_active()) check(*group, now, check_time);
}

void HealthCheck::note_pause(Clock::time_point now) {
  const auto pause = now - looked_at_.value_or(now);
  if (pause >= kPause) pause_ = {now, std::chrono::duration_cast<std::chrono::seconds>(pause)};
}

std::string HealthCheck::describe_pause() {
  const auto now = Clock::now();
  note_pause(now);
  if (pause_.length < kPause || now - pause_.end > kRecently) return {};
  return fmt::format(
      ", whose process did not run for {} s (it was stopped, or other programs had the processor)",
      pause_.length.count());
}

std::vector<int> HealthCheck::take_ended() {
  std::vector<int> ended = watch_.exited();
  for (const int rank : ended) context_.services.transport.forget(rank);
  return ended;
}

void HealthCheck::check_processes() {
  for (const int rank : take_ended())
    on_lost_(rank, KOLO_ERROR(kPeerLost, "its process has ended while it started"), Loss::kEnded);
}

void HealthCheck::check_heartbeats(Clock::time_point now) {
  const int own = context_.groups.world().communicator().rank();
  const Transport& transport = context_.services.transport;
  const auto findings = heartbeat_.look(
      now, transport.active_peers(), [&](int rank) { return transport.activity(rank); },
      [&](int rank) { return rank == own || context_.peers.has_left(rank); });
  for (const int rank : findings.beat) context_.peers.beat(rank);
  for (const auto& [rank, duration] : findings.silent)
    on_lost_(rank,
             KOLO_ERROR(kPeerLost,
                        "nothing was heard of it for {} s (KOLO_HEARTBEAT_TIMEOUT): its host "
                        "or the network is down, or its process is stopped or gets no processor",
                        duration.count()),
             Loss::kSilent);
}

void HealthCheck::check(Group& group, Clock::time_point now, bool check_time) {
  find_absent(group);
  group.audit().check_joined(context_);
  if (group.departures().any()) check_departures(group);
  check_slots(group, now);
  check_held_by_departure(group);
  if (!check_time) return;
  group.audit().check(context_, now);
  if (group.communicator().rank() < kReporters) report_stalls(group, now);
  if (now >= deadlines_from_) check_deadlines(group, now);
}

void HealthCheck::check_departures(Group& group) {
  const std::vector<int>& ranks = group.communicator().ranks();
  const Departures& departures = group.departures();
  for (const auto& operation : group.operations().running()) {
    if (operation->works_completed()) continue;
    if (operation->mode() == SubmissionMode::kPointToPoint) {
      // If the peer has done its part of the message, it arrives; otherwise it never ends here.
      const int peer = operation->message_peer();
      if (!departures.cut_messages(*group.communicator().index_of(peer))) continue;
      context_.failures.note(
          Failure{KOLO_ERROR(kPeerLost, "{}: rank {} has shut down before it was done",
                             operation->describe(), peer),
                  peer});
      continue;
    }
    const auto gone = departures.missing_in(operation->mode(), operation->sequence());
    if (!gone) continue;
    const int rank = ranks[static_cast<std::size_t>(*gone)];
    const bool refused =
        departures.progress_of(*gone)->has_refused(operation->mode(), operation->sequence());
    context_.failures.note(
        Failure{KOLO_ERROR(kPeerLost, "{}: rank {} has shut down and takes no part any more{}",
                           operation->describe(), rank,
                           refused ? "; its call had failed at once, for its arguments" : ""),
                rank});
  }
  Controller& controller = group.controller();
  for (int index = 0; index < group.communicator().size(); ++index) {
    if (!departures.is_missing_in_negotiation(index, controller.counters().agreements)) continue;
    const int rank = ranks[static_cast<std::size_t>(index)];
    const auto gone = [&](const std::string& what) {
      return KOLO_ERROR(kPeerLost, "{}: rank {} has shut down and will never submit it", what,
                        rank);
    };
    // The set stays, which harms nothing.
    for (const EntryPtr& removal : controller.take_removals_that_wait_for(index))
      group.complete_entry(*removal, gone(removal->name), {});
    const std::string what = controller.describe_waiting_for(index);
    if (what.empty()) continue;
    Error error = gone(what);
    error.message += "; a rank that makes fewer calls than the others calls join() before it ends";
    return context_.failures.note(Failure{std::move(error), rank});
  }
}

void HealthCheck::check_deadlines(Group& group, Clock::time_point now) {
  group.point_to_point().expire(now);
  context_.failures.note(
      group.controller().check_timeouts(now, group.operations().moves_collectives()));
  check_held(group, now);
  for (const auto& operation : group.operations().running()) {
    if (operation->works_completed() || now - operation->started_at() < operation_timeout())
      continue;
    context_.failures.note(KOLO_ERROR(
        kTimeout, "{} did not end within {} s (KOLO_OPERATION_TIMEOUT): {}", operation->describe(),
        context_.config.operation_timeout_s, operation->dump_state()));
  }
}

/// A tensor that some ranks never submit is the coordinator's to report.
void HealthCheck::report_stalls(const Group& group, Clock::time_point now) const {
  const std::chrono::seconds age(context_.config.stall_warning_s);
  for (const auto& operation : group.operations().running()) {
    const auto at = operation->started_at() + age;
    if (operation->works_completed() || at > now || at <= looked_before_) continue;
    log_.warning("{} has not ended for {} s (KOLO_STALL_WARNING): {}", operation->describe(),
                 age.count(), operation->dump_state());
  }
}

/// Operations wait until all members have added the set. A member that leaves before never does.
void HealthCheck::check_slots(Group& group, Clock::time_point now) {
  PartitionSlots& slots = group.slots();
  if (slots.settled()) return;
  std::optional<int> left = slots.left();
  for (const int rank : slots.silent()) {
    if (left || !context_.peers.has_left(rank)) continue;
    slots.rank_left(*group.communicator().index_of(rank));
    left = rank;
  }
  const PlannedOperation* const first = group.operations().first_planned();
  if (first == nullptr) return;
  if (left) {
    context_.failures.note(Failure{
        KOLO_ERROR(kPeerLost, "{}: rank {} has shut down before all ranks had added the set",
                   name_of(group, *first), *left),
        *left});
  } else if (now - slots.opened_at() >= operation_timeout()) {
    context_.failures.note(
        KOLO_ERROR(kTimeout,
                   "{}: rank {} did not say within {} s (KOLO_OPERATION_TIMEOUT) that the set was "
                   "added{}",
                   name_of(group, *first), slots.silent().front(), operation_timeout().count(),
                   group.communicator().rank() == 0 ? "" : " on all ranks"));
  }
}

/// If nothing runs and the first planned operation does not begin, it may wait for a rank that has
/// left.
void HealthCheck::check_held_by_departure(Group& group) {
  const PlannedOperation* const held = group.operations().held();
  if (held == nullptr || !group.slots().settled()) return;
  const auto gone = group.departures().missing_in(held->mode, held->sequence);
  if (!gone) return;
  const int rank = group.communicator().ranks()[static_cast<std::size_t>(*gone)];
  context_.failures.note(
      Failure{KOLO_ERROR(kPeerLost, "{}: rank {} has shut down and takes no part any more",
                         name_of(group, *held), rank),
              rank});
}

/// A running operation has a deadline. So has a planned one while nothing runs that it could wait
/// for.
void HealthCheck::check_held(Group& group, Clock::time_point now) {
  const auto since = group.held_since(now);
  if (!since || now - *since < operation_timeout()) return;
  context_.failures.note(
      KOLO_ERROR(kTimeout,
                 "{} could not begin within {} s (KOLO_OPERATION_TIMEOUT): the device is not done "
                 "with what it was given before",
                 name_of(group, *group.operations().held()), operation_timeout().count()));
}

/// A rank that left the world before it added the set never adds it, nor sends a shutdown notice to
/// it.
void HealthCheck::find_absent(Group& group) {
  const Departures& departures = context_.groups.world().departures();
  if (!group.lifetime.added_in || !departures.any()) return;
  for (int i = 0; i < group.communicator().size(); ++i) {
    const int rank = group.communicator().ranks()[static_cast<std::size_t>(i)];
    const auto& progress = departures.progress_of(rank);
    if (progress && progress->agreements <= *group.lifetime.added_in)
      group.departures().add_absent(i);
  }
}

}  // namespace kolo
