#include "runtime/cycle.h"

#include "runtime/base/check.h"
#include "runtime/fusion/fusion_plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kolo {
namespace {

// Rank 0 decides as soon as fewer than this many operations run: what becomes ready meanwhile
// gathers, so that fusion grows with the load and an idle link never waits.
constexpr std::size_t kBusyOperations = 2;
// Operations that run at once; each holds one fusion buffer at most.
constexpr std::size_t kMaxRunning = HostWindow::kSlots;
constexpr std::chrono::milliseconds kCheckInterval{200};
constexpr std::chrono::milliseconds kLastWords{500};
constexpr int kLastWordRounds = 1000;

Error no_memory(const Entry& entry, const RowLayout& layout) {
  return KOLO_ERROR(kOutOfMemory,
                    "{} '{}': there is no memory for its output of shape {}; the other ranks have "
                    "theirs",
                    to_string(entry.signature.kind), entry.name, to_string(layout.output_shape));
}

}  // namespace

Cycle::Cycle(Communicator& communicator, Transport& transport, const Device& device,
             TensorTable& table, OrderedQueue& ordered, HostWindow& window, const Config& config,
             const Log& log)
    : communicator_(communicator),
      transport_(transport),
      device_(device),
      table_(table),
      ordered_(ordered),
      window_(window),
      config_(config),
      log_(log),
      control_plane_(transport, communicator),
      controller_(communicator, control_plane_, config, log),
      arena_(transport),
      watch_(communicator.world(), log),
      departures_(communicator.size()),
      next_check_(Clock::now()) {}

bool Cycle::step() {
  if (communicator_.abort().raised()) return false;
  bool moved = drain();            // submission: what threads have handed in
  moved |= announce();             // negotiation: tell rank 0 what is ready here
  moved |= transport_.progress();  // transport: bytes and messages move
  moved |= decide();               // negotiation: rank 0 tells all what is ready everywhere
  moved |= plan();                 // fusion: which tensors travel together
  moved |= start();                // collectives: a schedule for each
  moved |= advance();              // execution: run what is ready
  moved |= complete();             // completion: hand the results back
  check_health();
  if (failure_) fail();
  return moved;
}

bool Cycle::drain() {
  drained_.clear();
  flush_ |= table_.drain(drained_);
  bool moved = !drained_.empty();
  for (Entry& entry : drained_) controller_.add(std::move(entry));

  drained_.clear();
  ordered_.drain(drained_);
  moved |= !drained_.empty();
  for (Entry& entry : drained_) {
    PlannedOperation operation{Door::kOrdered, next_sequence_[1]++, {}, {communicator_.size()}};
    operation.participants = communicator_.size();
    operation.layout = layout_of(entry.signature, {}, communicator_.rank(), communicator_.size());
    operation.entries.push_back(std::move(entry));
    planned_.push_back(std::move(operation));
  }
  return moved;
}

bool Cycle::announce() {
  auto announced = controller_.announce(Clock::now(), flush_);
  flush_ = false;
  if (!announced.ok()) note(std::move(announced).error());
  return announced.ok() && *announced;
}

bool Cycle::decide() {
  if (!planned_.empty() || running_.size() >= kBusyOperations) return false;
  auto decided = controller_.decide();
  if (!decided.ok()) note(std::move(decided).error());
  return decided.ok() && *decided;
}

bool Cycle::plan() {
  bool moved = false;
  while (controller_.take_agreed(agreed_)) {
    plan_list();
    moved = true;
  }
  return moved;
}

void Cycle::plan_list() {
  std::vector<const Response*> responses;
  responses.reserve(agreed_.size());
  for (const Agreed& agreed : agreed_) responses.push_back(&agreed.response);
  const FusionLimits limits{static_cast<std::uint64_t>(config_.fusion_threshold),
                            static_cast<std::uint64_t>(config_.fusion_max_tensor)};
  for (const FusedGroup& group : plan_fusion(responses, limits)) {
    const Response& first = agreed_[group.front()].response;
    PlannedOperation operation{Door::kNamed, next_sequence_[0]++, {}, {}, first.participants};
    for (const std::size_t index : group) {
      operation.entries.push_back(std::move(agreed_[index].entry));
      operation.contributors.push_back(agreed_[index].response.contributors);
    }
    if (group.size() == 1) {
      operation.layout =
          layout_of(first.signature, first.splits, communicator_.rank(), communicator_.size());
      Entry& entry = operation.entries.front();
      if (entry.allocate) entry.output = entry.allocate(operation.layout.output_shape);
    }
    planned_.push_back(std::move(operation));
  }
  for (const Agreed& agreed : agreed_) {
    const Response& response = agreed.response;
    if (response.runs()) continue;
    if (response.error) {
      finish(agreed.entry, *response.error, {});
    } else {
      if (response.signature.kind == OperationKind::kJoin) table_.restart_unnamed();
      finish(agreed.entry, {}, {.contributors = response.contributors, .value = response.result});
    }
  }
}

bool Cycle::start() {
  bool moved = false;
  while (!planned_.empty() && running_.size() < kMaxRunning) {
    auto operation = take_idle_operation();
    Status status = operation->start(std::move(planned_.front()));
    planned_.pop_front();
    if (!status.ok()) note(std::move(status));
    running_.push_back(std::move(operation));
    moved = true;
  }
  return moved;
}

bool Cycle::advance() {
  bool moved = false;
  for (auto& operation : running_) moved |= operation->advance();
  return moved;
}

bool Cycle::complete() {
  bool moved = false;
  for (auto& operation : running_) {
    if (failure_ || !operation->done()) continue;
    if (!operation->status().ok()) {
      Error error = operation->status().error();
      error.message = fmt::format("{}: {}", operation->describe(), error.message);
      note_failure({std::move(error)});
      continue;
    }
    const PlannedOperation finished = operation->finish();
    for (std::size_t i = 0; i < finished.entries.size(); ++i) {
      const Entry& entry = finished.entries[i];
      const bool memory_lacked =
          entry.allocate && entry.output == nullptr && finished.layout.output_elements > 0;
      finish(entry, memory_lacked ? no_memory(entry, finished.layout) : Status(),
             {finished.contributors[i], finished.layout.received});
    }
    idle_.push_back(std::move(operation));
    moved = true;
  }
  std::erase(running_, nullptr);
  return moved;
}

void Cycle::finish(const Entry& entry, Status status, Outcome outcome) {
  if (entry.work == nullptr) return;  // lent to the others
  // First the name, then the waiter: it may submit the next one at once.
  table_.release(entry.name);
  entry.work->complete(std::move(status), std::move(outcome));
}

std::unique_ptr<Operation> Cycle::take_idle_operation() {
  if (idle_.empty()) {
    return std::make_unique<Operation>(communicator_, transport_, device_, arena_, window_,
                                       schedules_, config_);
  }
  auto operation = std::move(idle_.back());
  idle_.pop_back();
  return operation;
}

void Cycle::check_health() {
  if (departures_.any()) {
    for (const auto& operation : running_) {
      if (const auto rank = departures_.missing_in(operation->door(), operation->sequence())) {
        note_failure({KOLO_ERROR(kPeerLost, "{}: rank {} has shut down and takes no part any more",
                                 operation->describe(), *rank),
                      *rank});
      }
    }
    const auto rank = departures_.missing_in_negotiation(controller_.counters().agreements);
    if (rank && controller_.has_pending()) {
      note_failure({KOLO_ERROR(kPeerLost, "{}: rank {} has shut down and will never submit it",
                               controller_.describe_pending(), *rank),
                    *rank});
    }
  }
  const auto now = Clock::now();
  if (now < next_check_) return;
  next_check_ = now + kCheckInterval;
  for (const int rank : watch_.exited()) {
    hear_last_words();
    if (departures_.contains(rank)) continue;
    on_peer_failed(rank, KOLO_ERROR(kPeerLost, "its process has ended without kolo::shutdown()"));
  }
  note(controller_.check_timeouts(now));
  for (const auto& operation : running_) {
    if (now - operation->started_at() < std::chrono::seconds(config_.operation_timeout_s)) continue;
    note_failure(
        {KOLO_ERROR(kTimeout, "{} did not end within {} s (KOLO_OPERATION_TIMEOUT): {}",
                    operation->describe(), config_.operation_timeout_s, operation->dump_state())});
  }
}

void Cycle::on_message(int peer, std::span<const std::byte> bytes) {
  const auto message = ControlPlane::parse(bytes);
  if (!message || message->communicator != communicator_.id()) {
    return note(KOLO_ERROR(kInternal, "rank {}: malformed control message of {} bytes from rank {}",
                           communicator_.rank(), bytes.size(), peer));
  }
  switch (message->kind) {
    case MessageKind::kReady:
    case MessageKind::kRequests:
    case MessageKind::kAgreed:
    case MessageKind::kResponses:
      return note(controller_.on_message(peer, *message));
    case MessageKind::kGoodbye:
      if (departures_.add(peer, message->payload)) return;
      return note(KOLO_ERROR(kInternal, "rank {}: malformed goodbye from rank {}",
                             communicator_.rank(), peer));
    case MessageKind::kAbort: {
      AbortNotice notice = AbortNotice::decode(message->payload, peer);
      // The sender failed first, so what we noticed is likely its consequence.
      failure_ = Failure{std::move(notice.error), notice.culprit, false};
      return;
    }
  }
}

void Cycle::on_peer_failed(int peer, const Error& error) {
  if (departures_.contains(peer)) return;
  note_failure({KOLO_ERROR(kPeerLost, "rank {} (host {}, pid {}) is lost: {}", peer,
                           communicator_.world().info(peer).hostname,
                           communicator_.world().info(peer).pid, error.message),
                peer});
}

void Cycle::hear_last_words() {
  for (int i = 0; i < kLastWordRounds && transport_.progress(); ++i) {
  }
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
  const Failure failure = std::move(*failure_);
  failure_.reset();
  if (!communicator_.abort().raise(failure.error, failure.culprit)) return;
  if (communicator_.size() > 1) log_.error("{}", failure.error.message);
  if (failure.tell_others) {
    // Best effort: whoever cannot be told notices by itself.
    const AbortNotice notice{failure.error, failure.culprit};
    static_cast<void>(tell_others(MessageKind::kAbort, notice.encode(), failure.culprit));
    static_cast<void>(transport_.flush(Abort(), Deadline::after(kLastWords)));
  }
  complete_all(failure.error);
}

void Cycle::complete_all(const Error& error) {
  Error refusal = error;
  if (error.code != ErrorCode::kShutdown) {
    refusal.code = ErrorCode::kAborted;
    refusal.message = fmt::format("kolo was aborted by an earlier failure: {}", error.message);
  }
  table_.close(refusal);
  ordered_.close(refusal);
  transport_.fail_all(error);

  std::vector<Entry> entries = controller_.take_pending();
  const auto take = [&](PlannedOperation operation) {
    std::move(operation.entries.begin(), operation.entries.end(), std::back_inserter(entries));
  };
  for (auto& operation : running_) take(operation->finish());
  for (auto& operation : planned_) take(std::move(operation));
  running_.clear();
  planned_.clear();
  // Whatever slipped in before the doors were closed.
  table_.drain(entries);
  ordered_.drain(entries);
  for (const Entry& entry : entries) finish(entry, error, {});
}

void Cycle::shut_down() {
  if (communicator_.abort().raised()) return;
  Progress progress{controller_.counters().agreements, next_sequence_};
  const auto unfinished = [&](Door door, std::uint64_t sequence) {
    auto& done = progress.operations[static_cast<std::size_t>(door)];
    done = std::min(done, sequence);
  };
  for (const auto& operation : running_) unfinished(operation->door(), operation->sequence());
  for (const auto& operation : planned_) unfinished(operation.door, operation.sequence);

  const Error error = KOLO_ERROR(
      kShutdown, "rank {}: kolo was shut down before the operation ended", communicator_.rank());
  communicator_.abort().raise(error, communicator_.rank());
  hear_last_words();
  Status told = tell_others(MessageKind::kGoodbye, Departures::encode(progress), Abort::kNoCulprit);
  if (told.ok()) told = transport_.flush(Abort(), Deadline::after(kLastWords));
  if (!told.ok()) log_.debug("goodbye: {}", told.error().message);
  complete_all(error);
}

Status Cycle::tell_others(MessageKind kind, std::string_view payload, int culprit) {
  // Whoever has left cannot be connected to any more.
  Status first;
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    if (rank == communicator_.rank() || rank == culprit || departures_.contains(rank)) continue;
    Status status = control_plane_.send(rank, kind, payload);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

bool Cycle::has_work() const {
  return !running_.empty() || !planned_.empty() || controller_.has_pending();
}

Cycle::Clock::time_point Cycle::next_timer() const {
  return std::min(next_check_, controller_.next_announcement().value_or(next_check_));
}

}  // namespace kolo
