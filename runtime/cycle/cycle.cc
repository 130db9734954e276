#include "runtime/cycle/cycle.h"

#include "runtime/base/check.h"
#include "runtime/health/abort_message.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace kolo {
namespace {

constexpr std::chrono::milliseconds kDrainTimeout{500};
/// For a rank that gives up by itself: all others may be alive and know of no other reason.
constexpr std::chrono::milliseconds kOwnDrainTimeout{5000};
/// For a process that was stopped or killed while it touched this one's users' memory.
constexpr std::chrono::milliseconds kLastTouch{1000};
/// Wait for the reason of a broken link; there may be no other reason.
constexpr std::chrono::milliseconds kReason{100};
/// And of the end of a process: another rank on another host may have caused it.
constexpr std::chrono::milliseconds kReasonOfEnd{20};
/// Wait for the reason why a rank gave up: some rank sends it, however long threads wait for a
/// core.
constexpr std::chrono::milliseconds kReasonToGiveUp{2000};
/// For a rank that leaves: if its shutdown notice opens a connection, UCX 1.13 ends the other
/// process when this one exits before the connection is made.
constexpr std::chrono::milliseconds kShutdownNoticeTimeout{2000};

}  // namespace

Cycle::Cycle(GroupRegistry& groups, const RankServices& services, const LinkCosts& links,
             const Config& config, const Log& log)
    : groups_(groups),
      world_(groups.world().communicator()),
      services_(services),
      log_(log),
      trace_(services.timeline, services.flight_recorder),
      peers_(groups, services.transport),
      context_{.groups = groups,
               .services = services,
               .links = links,
               .config = config,
               .trace = trace_,
               .failures = failures_,
               .peers = peers_,
               .change_process_sets =
                   [this](const Signature& signature) { return change_process_sets(signature); }},
      health_(context_, log,
              [this](int rank, const Error& error, Loss loss) { on_lost(rank, error, loss); }) {}

bool Cycle::step() {
  if (world_.abort().raised()) return false;
  const auto now = Clock::now();
  trace_.begin_pass(now);
  // submission: take what threads have submitted
  bool moved = for_each_group([&](Group& group) { return group.drain(context_); });
  // negotiation: tell rank 0 what is ready here
  moved |= for_each_group([&](Group& group) { return group.announce(context_, now); });
  // transport: bytes and messages move
  moved |= services_.transport.progress();
  end_aborted_sets();
  // negotiation: rank 0 tells all ranks what is ready everywhere, ranks between pass on
  moved |= for_each_group([&](Group& group) { return group.decide(context_, now); });
  // fusion: which tensors travel together
  moved |= for_each_group([&](Group& group) { return group.plan(context_); });
  // planning: a route for each operation, and its carrier
  moved |= for_each_group([&](Group& group) { return group.start(context_); });
  // execution: run what is ready
  moved |= for_each_group([](Group& group) { return group.advance(); });
  // completion: complete the Works
  moved |= complete();
  health_.check(now);
  if (failures_.any()) fail();
  return moved || !aborts_heard_.empty();
}

template <class Stage>
bool Cycle::for_each_group(Stage&& stage) {
  bool moved = false;
  // By index: a stage may add a group at the end.
  for (std::size_t i = 0; i < groups_.all().size(); ++i) {
    Group& group = *groups_.all()[i];
    if (group.is_active()) moved |= stage(group);
  }
  return moved;
}

bool Cycle::complete() {
  const bool moved = for_each_group([&](Group& group) { return group.complete(context_); });
  groups_.drop_removed();
  return moved;
}

// --- What arrives.

void Cycle::on_message(int peer, std::span<const std::byte> bytes) {
  const auto message = ControlPlane::parse(bytes);
  if (!message) {
    return failures_.note(KOLO_ERROR(kInternal,
                                     "rank {}: malformed control message of {} bytes from rank {}",
                                     world_.rank(), bytes.size(), peer));
  }
  if (Group* const group = groups_.find(message->communicator))
    return on_group_message(*group, peer, *message);
  // Messages to a group that was removed here do not matter any more.
  if (!groups_.is_to_come(message->communicator)) return;
  early_messages_.push_back(
      {message->communicator, peer, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
}

void Cycle::on_group_message(Group& group, int peer, const Message& message) {
  const auto index = group.communicator().index_of(peer);
  if (!index || !group.is_member()) {
    return failures_.note(KOLO_ERROR(
        kInternal, "rank {}: control message {} from rank {}{}, of which not both are",
        world_.rank(), static_cast<int>(message.kind), peer, group.communicator().suffix()));
  }
  if (message.kind == MessageKind::kBeat) return health_.on_beat(peer);
  if (message.kind == MessageKind::kShutdownNotice) {
    if (!group.departures().add(*index, message.payload)) {
      return failures_.note(KOLO_ERROR(kInternal, "rank {}: malformed shutdown notice from rank {}",
                                       world_.rank(), peer));
    }
    if (group.communicator().id() != 0) return;
    for (const auto& each : groups_.all()) each->on_departure(peer);
    return;
  }
  if (message.kind == MessageKind::kAbort) {
    AbortMessage abort_message = AbortMessage::decode(message.payload, peer);
    if (abort_message.culprit == world_.rank()) {
      // It was not heard of for too long, and lives.
      abort_message.culprit = Abort::kNoCulprit;
      abort_message.error.message =
          fmt::format("the others have given this rank up{}: {}", health_.describe_pause(),
                      abort_message.error.message);
    }
    return failures_.hear({std::move(abort_message.error), abort_message.culprit, /*heard=*/true});
  }
  if (group.aborted()) return;
  if (message.kind == MessageKind::kSetAborted) {
    // This may be within a check for ranks that have left, as the sender perhaps has meanwhile.
    group.expect_abort();
    aborts_heard_.emplace_back(group.communicator().id(),
                               AbortMessage::decode(message.payload, peer).error);
    return;
  }
  failures_.note(group.on_message(*index, message));
}

void Cycle::on_peer_failed(int peer, const Error& error) { on_lost(peer, error, Loss::kUnknown); }

void Cycle::on_lost(int peer, const Error& error, Loss loss) {
  if (peers_.has_left(peer)) return;
  const RankInfo& info = world_.world().info(peer);
  failures_.note(Failure{KOLO_ERROR(kPeerLost, "rank {} (host {}, pid {}) is lost: {}", peer,
                                    info.hostname, info.pid, error.message),
                         peer, /*heard=*/false, loss});
}

Status Cycle::losses() {
  health_.check_processes();
  return failures_.any() ? Status(failures_.first().error) : Status();
}

void Cycle::give_up(const Error& why) {
  if (!world_.abort().raise(why)) return;
  tell_of({why});
  complete_all(why);
}

// --- Process sets.

// The world's agreements come in one order on every rank, so the numbers are the same everywhere.
Result<std::int64_t> Cycle::change_process_sets(const Signature& signature) {
  if (signature.kind == OperationKind::kAddProcessSet) return add_process_set(signature);
  KOLO_ASSIGN(Group* const group, groups_.remove(static_cast<std::uint32_t>(signature.root)));
  group->close_removed(context_);
  return signature.root;
}

Result<std::int64_t> Cycle::add_process_set(const Signature& signature) {
  const std::vector<int> ranks(signature.shape.begin(), signature.shape.end());
  KOLO_ASSIGN(Group* const group, groups_.add(ranks, is_by_its_ranks(signature)));
  const std::uint32_t id = group->communicator().id();
  group->lifetime.added_in = context_.lists_planned;
  if (group->is_member()) trace_.joined_set(group->communicator());
  std::vector<EarlyMessage> messages = std::exchange(early_messages_, {});
  for (EarlyMessage& early : messages) {
    if (early.group != id) {
      early_messages_.push_back(std::move(early));
    } else {
      on_message(early.peer, std::as_bytes(std::span(early.bytes)));
    }
  }
  return id;
}

// --- Failure and the end.

void Cycle::abort(Error error) {
  if (world_.abort().raised()) return;
  failures_.note(Failure{std::move(error), world_.rank()});
  fail();
}

// The others are told before the Works here fail: whoever waits for one may end the process.
void Cycle::abort_set(Group& group, const Error& error) {
  if (world_.abort().raised() || group.aborted()) return;
  const std::string message = AbortMessage{error, world_.rank()}.encode();
  const std::vector payloads(static_cast<std::size_t>(group.communicator().size()), message);
  failures_.note(peers_.tell_others(group, MessageKind::kSetAborted, payloads, Abort::kNoCulprit));
  group.abort(context_, error);
}

// Ranks of a small set pass it on: one may shut down before another has heard of it, and its
// shutdown notice must not come first.
void Cycle::end_aborted_sets() {
  for (const auto& [id, error] : std::exchange(aborts_heard_, {})) {
    Group* const group = groups_.find(id);
    if (group == nullptr) continue;
    if (group->communicator().size() <= kFewRanks) abort_set(*group, error);
    group->abort(context_, error);
  }
}

// A peer that learned of the failure first may exit before its abort message reaches us, so we can
// see its broken link first. Wait briefly for the abort message, which names the real cause.
void Cycle::hear_reason() {
  const ErrorCode code = failures_.first().error.code;
  const bool gave_up = code == ErrorCode::kAborted;
  const bool is_consequence =
      code == ErrorCode::kPeerLost || (gave_up && failures_.first().culprit == Abort::kNoCulprit);
  const auto patience = failures_.first().loss == Loss::kEnded ? kReasonOfEnd : kReason;
  const Deadline deadline = Deadline::after(gave_up ? kReasonToGiveUp : patience);
  while (is_consequence && !failures_.first().heard && !deadline.expired())
    if (!services_.transport.progress()) std::this_thread::yield();
}

void Cycle::fail() {
  // Another rank's failure can show here as a broken link; that rank's own message explains it
  // better.
  peers_.drain_control_messages();
  hear_reason();
  // Otherwise this waits for what is on its way to them.
  static_cast<void>(health_.take_ended());
  const Failure failure = failures_.take();
  if (!world_.abort().raise(failure.error, failure.culprit)) return;
  if (world_.size() > 1) log_.error("{}", failure.error.message);
  // In a large world, each rank tells the ranks that it is concerned with.
  if (failure.culprit_may_live()) tell_culprit(failure);
  if (!failure.heard || world_.size() > kFewRanks) tell_of(failure);
  trace_.failed(failure);
  complete_all(failure.error);
}

// Best effort: a rank that cannot be told notices by itself.
void Cycle::tell_of(const Failure& failure) {
  const AbortMessage message{failure.error, failure.culprit};
  const std::vector payloads(static_cast<std::size_t>(world_.size()), message.encode());
  static_cast<void>(peers_.tell(groups_.world(), MessageKind::kAbort, payloads, failure.culprit,
                                [this](int rank) { return peers_.concerned(rank); }));
  const bool is_own = failure.culprit == world_.rank();
  static_cast<void>(services_.transport.flush(
      Abort(), Deadline::after(is_own ? kOwnDrainTimeout : kDrainTimeout)));
}

// Otherwise it would wait for the others until it does not hear of them, while they wait for it in
// the next world of an elastic job.
void Cycle::tell_culprit(const Failure& failure) {
  const int rank = failure.culprit;
  if (rank == world_.rank() || peers_.has_left(rank)) return;
  if (!services_.transport.activity(rank).opened) return;
  const std::string message = AbortMessage{failure.error, rank}.encode();
  static_cast<void>(groups_.world().control_plane().send(rank, MessageKind::kAbort, message));
  peers_.drain_control_messages();
}

void Cycle::complete_all(const Error& error) {
  Error refusal = error;
  if (error.code != ErrorCode::kShutdown) {
    refusal.code = ErrorCode::kAborted;
    refusal.message = fmt::format("kolo was aborted by an earlier failure: {}", error.message);
  }
  for (const auto& group : groups_.all()) group->close(refusal);
  // Work that hangs on the device still uses the memory of its operations.
  for (const auto& group : groups_.all())
    if (error.code != ErrorCode::kShutdown || !group->drain_nccl(kDrainTimeout))
      group->nccl().abort(error);
  services_.transport.fail_all(error);
  UsersMemory& users = services_.window.users_memory();
  users.give_back();
  // This rank's device touches no memory after its operations have ended.
  std::vector<std::pair<Group*, EntryPtr>> ended;
  for (const auto& group : groups_.all()) {
    for (EntryPtr& entry : group->take_entries(context_, error)) {
      if (entry->work == nullptr) continue;  // entry of a joined rank that contributes zeros
      trace_.finished(group->communicator(), *entry, error);
      ended.emplace_back(group.get(), std::move(entry));
    }
  }
  users.await_others(Deadline::after(kLastTouch));
  // A thread that waits may end the process at once.
  trace_.timeline().flush();
  for (const auto& [group, entry] : ended) group->complete_entry(*entry, error, {});
}

// Ranks of other hosts could not end a plan without this rank.
void Cycle::leave_plans() {
  const Deadline deadline = Deadline::after(kShutdownNoticeTimeout);
  while (!failures_.any() && !deadline.expired() && for_each_group([this](Group& group) {
    return failures_.take_moved(group.controller().leave_plan(Clock::now()));
  })) {
    if (!services_.transport.progress()) std::this_thread::yield();
  }
}

void Cycle::shut_down() {
  if (world_.abort().raised()) return;
  leave_plans();
  for (const auto& group : groups_.all())
    if (group->is_active()) failures_.note(group->exchange().look_back());
  if (failures_.any()) return fail();
  if (const Status told = send_shutdown_notices(); !told.ok())
    log_.debug("shutdown notice: {}", told.error().message);
  complete_all(world_.abort().error());
}

Status Cycle::send_shutdown_notices() {
  // This rank's progress now, before other ranks' control messages can change it.
  std::vector<std::vector<std::string>> notices;
  for (const auto& group : groups_.all()) {
    auto& by_rank = notices.emplace_back();
    for (int reader = 0; reader < group->communicator().size(); ++reader)
      by_rank.push_back(Departures::encode(group->progress(reader)));
  }
  world_.abort().raise(
      KOLO_ERROR(kShutdown, "rank {}: kolo was shut down before the operation ended",
                 world_.rank()),
      world_.rank());
  // Decided before anything is sent, because sending opens links: a rank that hears of one set's
  // end must hear of the world's.
  std::vector<bool> hears;
  for (int rank = 0; rank < world_.size(); ++rank) hears.push_back(peers_.concerned(rank));
  const auto hear = [&hears](int rank) { return hears[static_cast<std::size_t>(rank)]; };
  Status first;
  for (std::size_t i = 0; i < notices.size(); ++i) {
    Group& group = *groups_.all()[i];
    if (!group.is_member() || group.lifetime.removed) continue;
    Status status =
        peers_.tell(group, MessageKind::kShutdownNotice, notices[i], Abort::kNoCulprit, hear);
    if (first.ok()) first = std::move(status);
  }
  Status flushed = services_.transport.flush(Abort(), Deadline::after(kShutdownNoticeTimeout));
  return first.ok() ? flushed : first;
}

// --- What the driver asks.

bool Cycle::has_work() const {
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(), [](const auto& group) { return group->has_work(); });
}

bool Cycle::has_messages() const {
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(), [](const auto& group) {
    return group->is_active() && group->point_to_point().has_pending();
  });
}

bool Cycle::is_communicating() const {
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(), [](const auto& group) {
    return group->is_active() && !group->operations().running().empty();
  });
}

bool Cycle::is_computing() const {
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(), [](const auto& group) {
    return group->is_active() && group->operations().waits_for_device();
  });
}

Cycle::Clock::time_point Cycle::next_timer() const {
  Clock::time_point next = health_.next_check();
  for (const auto& group : groups_.all())
    next = std::min(next, group->controller().next_announcement().value_or(next));
  return next;
}

}  // namespace kolo
