// The cycle's answers to what happens to it: messages, lost peers, failures, the end. The stages
// are in cycle.cc. Progress token's holder.
#include "runtime/base/check.h"
#include "runtime/cycle.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

namespace kolo {
namespace {

constexpr std::chrono::milliseconds kLastWords{500};
/// Of a rank that gives up by itself: all others may be alive, and they know of no other reason.
constexpr std::chrono::milliseconds kOwnLastWords{5000};
/// Of a process that was stopped or killed while it touched this one's users' memory.
constexpr std::chrono::milliseconds kLastTouch{1000};
constexpr int kLastWordRounds = 1000;
/// For the reason of a link that broke, which may have none but that.
constexpr std::chrono::milliseconds kReason{100};
/// For that of a rank that gave up: somebody tells it, however long threads wait for a core.
constexpr std::chrono::milliseconds kReasonToGiveUp{2000};
/// Of a rank that leaves: where that opens a connection, UCX 1.13 ends the other process if this
/// one has gone before the connection is made.
constexpr std::chrono::milliseconds kGoodbyes{2000};

}  // namespace

bool Cycle::begin_one_shot(Group& group, OneShot::Request& request) {
  // Behind others of its door it would overtake them.
  if (world_.abort().raised() || group.one_shot.busy() || !group.ordered.idle()) return false;
  if (group.controller.joined()) return false;  // see check_joined()
  request.sequence = group.calls();
  request.before = group.history.bits();
  const bool trades = group.one_shot.trades(request.kind, request.bytes());
  if (!trades && !group.one_shot.tries(request)) return false;
  if (trades && group.communicator.id() == 0 && !cost_switch().may_begin(request.sequence))
    return false;
  trace_.one_shot_begun();
  group.one_shot.begin(request);
  return true;
}

void Cycle::end_one_shot(Group& group, const OneShot::Request& request) {
  group.next_sequence(Door::kOrdered);
  group.history.add(group.one_shot.what());
  group.recent_calls.add(request.sequence, group.one_shot.what());
  trace_.one_shot_ended(group, request);
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
  // Of a group that was removed here, nothing matters any more.
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
      return;  // the next step looks by itself
    case MessageKind::kCosts:
    case MessageKind::kCostsHeard:
    case MessageKind::kCostsFrom:
      return note(on_cost_message(group, *index, message));
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
    case MessageKind::kGoodbye:
      if (group.departures.add(*index, message.payload)) {
        if (group.communicator.id() == 0) on_departure(peer);
        return;
      }
      return note(
          KOLO_ERROR(kInternal, "rank {}: malformed goodbye from rank {}", world_.rank(), peer));
    case MessageKind::kAbort: {
      AbortNotice notice = AbortNotice::decode(message.payload, peer);
      // The sender failed first, so what we noticed is likely its consequence.
      failure_ = Failure{std::move(notice.error), notice.culprit, /*heard=*/true};
      return;
    }
  }
}

void Cycle::on_departure(int peer) {
  leave_costs(groups_.world(), peer);
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

void Cycle::hear_last_words() {
  for (int i = 0; i < kLastWordRounds && transport_.progress(); ++i) {
  }
}

// Who was told of a failure first ends at once, and what it leaves undone may show here before
// that failure is told here.
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
  // Another rank's failure shows here as a broken link: its own words are the better explanation.
  hear_last_words();
  hear_reason();
  const Failure failure = std::move(*failure_);
  failure_.reset();
  if (!world_.abort().raise(failure.error, failure.culprit)) return;
  if (world_.size() > 1) log_.error("{}", failure.error.message);
  // In a large world each tells those it has to do with.
  if (!failure.heard || world_.size() > kFewRanks) {
    // Best effort: whoever cannot be told notices by itself.
    const AbortNotice notice{failure.error, failure.culprit};
    static_cast<void>(tell(groups_.world(), MessageKind::kAbort,
                           std::vector(static_cast<std::size_t>(world_.size()), notice.encode()),
                           failure.culprit, [this](int rank) { return concerned(rank); }));
    const bool is_own = failure.culprit == world_.rank();
    static_cast<void>(
        transport_.flush(Abort(), Deadline::after(is_own ? kOwnLastWords : kLastWords)));
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
  // What hangs on the device holds the memory of its operations.
  for (const auto& group : groups_.all())
    if (error.code != ErrorCode::kShutdown || !drain_nccl(*group)) group->nccl.abort(error);
  transport_.fail_all(error);
  window_.users_memory().give_back();
  // This rank's device touches nothing any more when its operations have ended.
  std::vector<std::pair<Group*, EntryPtr>> ended;
  for (const auto& group : groups_.all()) {
    for (EntryPtr& entry : take_entries(*group, error)) {
      if (entry->work == nullptr) continue;  // lent to the others
      trace_.finished(*group, *entry, error);
      ended.emplace_back(group.get(), std::move(entry));
    }
  }
  window_.users_memory().await_others(Deadline::after(kLastTouch));
  // Whoever waits may end the process at once.
  trace_.timeline().flush();
  for (const auto& [group, entry] : ended) hand_back(*group, *entry, error, {});
}

// What is on its way through NCCL ends where all ranks have handed it in.
bool Cycle::drain_nccl(Group& group) {
  if (!group.nccl.wanted()) return true;
  const Deadline deadline = Deadline::after(kLastWords);
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
    if (!operation->handed_out()) trace_.ended(group, *operation, error);
    take(operation->finish());
  }
  for (auto& operation : group.planned) take(std::move(operation));
  if (group.joined) entries.push_back(std::move(group.joined->entry));
  group.joined.reset();
  group.running.clear();
  group.planned.clear();
  // Whatever slipped in before the doors were closed.
  group.table.drain(entries);
  group.ordered.drain(entries);
  return entries;
}

void Cycle::shut_down() {
  if (world_.abort().raised()) return;
  for (const auto& group : groups_.all())
    if (group->is_member()) note(group->one_shot.look_back());
  if (failure_) return fail();
  // How far it has come by now, whatever the last words of others set off.
  std::vector<std::vector<std::string>> goodbyes;
  for (const auto& group : groups_.all()) {
    auto& by_rank = goodbyes.emplace_back();
    for (int reader = 0; reader < group->communicator.size(); ++reader)
      by_rank.push_back(Departures::encode(group->progress(reader)));
  }
  const Error error = KOLO_ERROR(
      kShutdown, "rank {}: kolo was shut down before the operation ended", world_.rank());
  world_.abort().raise(error, world_.rank());
  // Decided beforehand, for what is sent makes links: who hears of a set's hears of the world's.
  std::vector<bool> hears;
  for (int rank = 0; rank < world_.size(); ++rank) hears.push_back(concerned(rank));
  const auto hear = [&hears](int rank) { return hears[static_cast<std::size_t>(rank)]; };
  Status told;
  for (std::size_t i = 0; i < goodbyes.size(); ++i) {
    Group& group = *groups_.all()[i];
    if (!group.is_member() || group.removed) continue;
    Status status = tell(group, MessageKind::kGoodbye, goodbyes[i], Abort::kNoCulprit, hear);
    if (told.ok()) told = std::move(status);
  }
  Status flushed = transport_.flush(Abort(), Deadline::after(kGoodbyes));
  if (told.ok()) told = std::move(flushed);
  if (!told.ok()) log_.debug("goodbye: {}", told.error().message);
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
    // Whoever has left cannot be connected to any more; it said so before, perhaps just now.
    hear_last_words();
    if (groups_.world().departures.contains(rank)) continue;
    Status status = group.control_plane.send(i, kind, payloads[static_cast<std::size_t>(i)]);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

// In a large world, who has had no message of this rank, nor sent it one, finds that it has left
// when it connects to it, which it does before it waits for a message.
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

void Cycle::greet() {
  if (world_.size() <= kFewRanks || world_.rank() == 0) return;
  static_cast<void>(groups_.world().control_plane.send(0, MessageKind::kBeat, {}));
}

void Cycle::greet(int rank) {
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
                       [](const auto& operation) { return operation->computes(); });
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
