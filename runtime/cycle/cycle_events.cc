// How the cycle reacts to messages, lost peers, failures and shutdown. The stages are in cycle.cc.
// Progress token holder.
#include "runtime/base/check.h"
#include "runtime/cycle/cycle.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

namespace kolo {
namespace {

constexpr std::chrono::milliseconds kDrainTimeout{500};
/// For a rank that gives up by itself: all others may be alive, and learn the reason only from it.
constexpr std::chrono::milliseconds kOwnDrainTimeout{5000};
/// For a process that was stopped or killed while it touched this rank's user memory.
constexpr std::chrono::milliseconds kLastTouch{1000};
constexpr int kDrainRounds = 1000;
/// Wait for the reason of a broken link; there may be no other reason.
constexpr std::chrono::milliseconds kReason{100};
/// Wait for the reason why a rank gave up: some rank sends it, however long threads wait for a
/// core.
constexpr std::chrono::milliseconds kReasonToGiveUp{2000};
/// For a rank that leaves: if its shutdown notice opens a connection, UCX 1.13 ends the other
/// process when this one exits before the connection is made.
constexpr std::chrono::milliseconds kShutdownNoticeTimeout{2000};

}  // namespace

bool Cycle::begin_exchange(Group& group, Exchange::Request& request) {
  // Behind earlier in-order calls, this call would overtake them.
  if (world_.abort().raised() || group.exchange.busy() || !group.ordered.idle()) return false;
  if (group.controller.joined()) return false;  // see check_joined()
  request.sequence = group.calls();
  request.before = group.history.bits();
  const bool is_two_rank = group.exchange.limits().take_two_rank(request.kind, request.bytes());
  if (!is_two_rank && !group.exchange.tries(request)) return false;
  trace_.exchange_begun();
  group.exchange.begin(request);
  return true;
}

void Cycle::end_exchange(Group& group, const Exchange::Request& request) {
  group.next_sequence(SubmissionMode::kInOrder);
  group.history.add(group.exchange.fingerprint());
  group.recent_calls.add(request.sequence, group.exchange.fingerprint());
  trace_.exchange_ended(group, request);
}

void Cycle::on_message(int peer, std::span<const std::byte> bytes) {
  const auto message = ControlPlane::parse(bytes);
  if (!message) {
    return note(KOLO_ERROR(kInternal, "rank {}: malformed control message of {} bytes from rank {}",
                           world_.rank(), bytes.size(), peer));
  }
  if (Group* const group = groups_.find(message->communicator)) {
    return on_group_message(*group, peer, *message);
  }
  // Messages to a group that was removed here do not matter any more.
  if (!groups_.is_to_come(message->communicator)) return;
  early_messages_.push_back(
      {message->communicator, peer, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
}

void Cycle::on_group_message(Group& group, int peer, const Message& message) {
  const auto index = group.communicator.index_of(peer);
  if (!index || !group.is_member()) {
    return note(KOLO_ERROR(kInternal,
                           "rank {}: control message {} from rank {}{}, of which not both"
                           " are",
                           world_.rank(), static_cast<int>(message.kind), peer,
                           group.communicator.suffix()));
  }
  switch (message.kind) {
    case MessageKind::kReady:
    case MessageKind::kRequests:
    case MessageKind::kAgreed:
    case MessageKind::kResponses:
    case MessageKind::kJoined:
      return note(group.controller.on_message(*index, message));
    case MessageKind::kOffer:
    case MessageKind::kAnswer:
      return note(group.point_to_point.on_message(*index, message));
    case MessageKind::kDoorbell:
      return;  // the next step looks at the control segments by itself
    case MessageKind::kSlots:
      return note(group.slots.hear(
          *index, {reinterpret_cast<const char*>(message.payload.data()), message.payload.size()}));
    case MessageKind::kNcclId:
      return note(group.nccl.on_message(
          {reinterpret_cast<const char*>(message.payload.data()), message.payload.size()}));
    case MessageKind::kBeat:
      return heartbeat_.on_beat(peer);
    case MessageKind::kCall:
      return note(on_call_message(group, *index, message));
    case MessageKind::kShutdownNotice:
      if (group.departures.add(*index, message.payload)) {
        if (group.communicator.id() == 0) on_departure(peer);
        return;
      }
      return note(KOLO_ERROR(kInternal, "rank {}: malformed shutdown notice from rank {}",
                             world_.rank(), peer));
    case MessageKind::kAbort: {
      AbortMessage abort_message = AbortMessage::decode(message.payload, peer);
      // The sender failed first, so what we noticed is likely its consequence.
      failure_ = Failure{std::move(abort_message.error), abort_message.culprit, /*heard=*/true};
      return;
    }
  }
}

void Cycle::on_departure(int peer) {
  for (const auto& group : groups_.all()) {
    const auto index = group->communicator.index_of(peer);
    if (index && group->is_member()) group->point_to_point.peer_left(*index);
  }
}

void Cycle::on_peer_failed(int peer, const Error& error) {
  if (groups_.world().departures.contains(peer)) return;
  note_failure(
      {KOLO_ERROR(kPeerLost, "rank {} (host {}, pid {}) is lost: {}", peer,
                  world_.world().info(peer).hostname, world_.world().info(peer).pid, error.message),
       peer});
}

Status Cycle::losses() {
  for (const int rank : watch_.exited())
    on_peer_failed(rank, KOLO_ERROR(kPeerLost, "its process has ended while it started"));
  return failure_ ? Status(failure_->error) : Status();
}

void Cycle::abort(Error error) {
  if (world_.abort().raised()) return;
  note_failure({std::move(error), world_.rank()});
  fail();
}

void Cycle::drain_control_messages() {
  for (int i = 0; i < kDrainRounds && transport_.progress(); ++i) {
  }
}

// A peer that learned of the failure first may exit before its abort message reaches us, so we can
// see its broken link first. Wait briefly for the abort message, which names the real cause.
void Cycle::hear_reason() {
  const ErrorCode code = failure_->error.code;
  const bool gave_up = code == ErrorCode::kAborted;
  const bool is_consequence =
      (code == ErrorCode::kPeerLost || gave_up) && failure_->culprit == Abort::kNoCulprit;
  const Deadline deadline = Deadline::after(gave_up ? kReasonToGiveUp : kReason);
  while (is_consequence && !failure_->heard && !deadline.expired())
    if (!transport_.progress()) std::this_thread::yield();
}

void Cycle::note(Status status) {
  if (!status.ok()) note_failure({std::move(status).error()});
}

void Cycle::note_failure(Failure failure) {
  if (!failure_) failure_ = std::move(failure);
}

void Cycle::fail() {
  // Another rank's failure can show here as a broken link; that rank's own message explains it
  // better.
  drain_control_messages();
  hear_reason();
  const Failure failure = std::move(*failure_);
  failure_.reset();
  if (!world_.abort().raise(failure.error, failure.culprit)) return;
  if (world_.size() > 1) log_.error("{}", failure.error.message);
  // In a large world, each rank tells the ranks that it is concerned with.
  if (!failure.heard || world_.size() > kFewRanks) {
    // Best effort: a rank that cannot be told notices by itself.
    const AbortMessage abort_message{failure.error, failure.culprit};
    static_cast<void>(
        tell(groups_.world(), MessageKind::kAbort,
             std::vector(static_cast<std::size_t>(world_.size()), abort_message.encode()),
             failure.culprit, [this](int rank) { return concerned(rank); }));
    const bool is_own = failure.culprit == world_.rank();
    static_cast<void>(
        transport_.flush(Abort(), Deadline::after(is_own ? kOwnDrainTimeout : kDrainTimeout)));
  }
  trace_.failed(failure.error);
  complete_all(failure.error);
}

void Cycle::complete_all(const Error& error) {
  Error refusal = error;
  if (error.code != ErrorCode::kShutdown) {
    refusal.code = ErrorCode::kAborted;
    refusal.message = fmt::format("kolo was aborted by an earlier failure: {}", error.message);
  }
  for (const auto& group : groups_.all()) {
    group->table.close(refusal);
    group->ordered.close(refusal);
  }
  // Work that hangs on the device still uses the memory of its operations.
  for (const auto& group : groups_.all())
    if (error.code != ErrorCode::kShutdown || !drain_nccl(*group)) group->nccl.abort(error);
  transport_.fail_all(error);
  window_.users_memory().give_back();
  // This rank's device touches no memory after its operations have ended.
  std::vector<std::pair<Group*, EntryPtr>> ended;
  for (const auto& group : groups_.all()) {
    for (EntryPtr& entry : take_entries(*group, error)) {
      if (entry->work == nullptr) continue;  // entry of a joined rank that contributes zeros
      trace_.finished(*group, *entry, error);
      ended.emplace_back(group.get(), std::move(entry));
    }
  }
  window_.users_memory().await_others(Deadline::after(kLastTouch));
  // A thread that waits may end the process at once.
  trace_.timeline().flush();
  for (const auto& [group, entry] : ended) complete_entry(*group, *entry, error, {});
}

// Work in NCCL ends once all ranks have enqueued it.
bool Cycle::drain_nccl(Group& group) {
  if (!group.nccl.wanted()) return true;
  const Deadline deadline = Deadline::after(kDrainTimeout);
  const auto is_done = [](const auto& operation) { return operation->done(); };
  while (!std::all_of(group.running.begin(), group.running.end(), is_done)) {
    if (deadline.expired()) return false;
    for (const auto& operation : group.running) operation->advance();
  }
  return true;
}

std::vector<EntryPtr> Cycle::take_entries(Group& group, const Error& error) {
  std::vector<EntryPtr> entries = group.controller.take_pending();
  for (EntryPtr& entry : group.point_to_point.take_pending()) entries.push_back(std::move(entry));
  const auto take = [&](PlannedOperation operation) {
    std::move(operation.entries.begin(), operation.entries.end(), std::back_inserter(entries));
  };
  for (auto& operation : group.running) {
    if (!operation->works_completed()) trace_.ended(group, *operation, error);
    take(operation->finish());
  }
  for (auto& operation : group.planned) take(std::move(operation));
  if (group.joined) entries.push_back(std::move(group.joined->entry));
  group.joined.reset();
  group.running.clear();
  group.planned.clear();
  // Entries that were submitted before the queues were closed.
  group.table.drain(entries);
  group.ordered.drain(entries);
  return entries;
}

void Cycle::shut_down() {
  if (world_.abort().raised()) return;
  for (const auto& group : groups_.all())
    if (group->is_member()) note(group->exchange.look_back());
  if (failure_) return fail();
  // This rank's progress now, before other ranks' control messages can change it.
  std::vector<std::vector<std::string>> notices;
  for (const auto& group : groups_.all()) {
    auto& by_rank = notices.emplace_back();
    for (int reader = 0; reader < group->communicator.size(); ++reader)
      by_rank.push_back(Departures::encode(group->progress(reader)));
  }
  const Error error = KOLO_ERROR(
      kShutdown, "rank {}: kolo was shut down before the operation ended", world_.rank());
  world_.abort().raise(error, world_.rank());
  // Decided before anything is sent, because sending opens links: a rank that hears of one set's
  // end must hear of the world's.
  std::vector<bool> hears;
  for (int rank = 0; rank < world_.size(); ++rank) hears.push_back(concerned(rank));
  const auto hear = [&hears](int rank) { return hears[static_cast<std::size_t>(rank)]; };
  Status told;
  for (std::size_t i = 0; i < notices.size(); ++i) {
    Group& group = *groups_.all()[i];
    if (!group.is_member() || group.removed) continue;
    Status status = tell(group, MessageKind::kShutdownNotice, notices[i], Abort::kNoCulprit, hear);
    if (told.ok()) told = std::move(status);
  }
  Status flushed = transport_.flush(Abort(), Deadline::after(kShutdownNoticeTimeout));
  if (told.ok()) told = std::move(flushed);
  if (!told.ok()) log_.debug("shutdown notice: {}", told.error().message);
  complete_all(error);
}

Status Cycle::tell_others(Group& group, MessageKind kind, const std::vector<std::string>& payloads,
                          int culprit) {
  return tell(group, kind, payloads, culprit, [](int) { return true; });
}

Status Cycle::tell(Group& group, MessageKind kind, const std::vector<std::string>& payloads,
                   int culprit, const std::function<bool(int rank)>& hear) {
  Status first;
  const std::vector<int>& ranks = group.communicator.ranks();
  for (int i = 0; i < group.communicator.size(); ++i) {
    const int rank = ranks[static_cast<std::size_t>(i)];
    if (i == group.communicator.rank() || rank == culprit || !hear(rank)) continue;
    // A rank that has left cannot be connected to; its shutdown notice may be just arriving.
    drain_control_messages();
    if (groups_.world().departures.contains(rank)) continue;
    Status status = group.control_plane.send(i, kind, payloads[static_cast<std::size_t>(i)]);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

// In a large world, two ranks that have exchanged no message do not tell each other. A rank finds
// that the other has left when it connects to it, which it does before it waits for a message.
bool Cycle::concerned(int rank) const {
  if (world_.size() <= kFewRanks || rank == 0 || world_.world().same_host(rank, world_.rank()))
    return true;
  const LinkActivity activity = transport_.activity(rank);
  if (activity.opened || activity.arrivals > 0) return true;
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(), [rank](const auto& group) {
    return group->communicator.id() != 0 && group->communicator.size() <= kFewRanks &&
           group->is_member() && group->communicator.index_of(rank).has_value();
  });
}

void Cycle::open_link() {
  if (world_.size() <= kFewRanks || world_.rank() == 0) return;
  static_cast<void>(groups_.world().control_plane.send(0, MessageKind::kBeat, {}));
}

void Cycle::open_link(int rank) {
  if (concerned(rank)) return;
  static_cast<void>(groups_.world().control_plane.send(rank, MessageKind::kBeat, {}));
}

bool Cycle::has_work() const {
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(), [](const auto& group) { return group->has_work(); });
}

bool Cycle::has_messages() const {
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(),
                     [](const auto& group) { return group->point_to_point.has_pending(); });
}

bool Cycle::is_communicating() const {
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(),
                     [](const auto& group) { return !group->running.empty(); });
}

bool Cycle::is_computing() const {
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(), [](const auto& group) {
    return std::any_of(group->running.begin(), group->running.end(),
                       [](const auto& operation) { return operation->waits_for_device(); });
  });
}

Cycle::Clock::time_point Cycle::next_timer() const {
  Clock::time_point next = next_check_;
  for (const auto& group : groups_.all()) {
    next = std::min(next, group->controller.next_announcement().value_or(next));
  }
  return next;
}

}  // namespace kolo
