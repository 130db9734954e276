// Executor: counts each step's unfinished dependencies and runs ready steps, transfers first.
// Driven by the cycle or a blocking call, on the thread that holds the progress token.
#include "runtime/execution/executor.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kolo {
namespace {

/// Bytes of local work per advance(): about 0.1 ms, so that arrived messages do not wait for long.
constexpr std::size_t kBytesPerAdvance = 1 << 20;
constexpr std::size_t kStepsInDump = 8;

bool is_transfer(StepKind kind) {
  switch (kind) {
    case StepKind::kSend:
    case StepKind::kReceive:
    case StepKind::kSignal:
    case StepKind::kWait:
      return true;
    case StepKind::kReduce:
    case StepKind::kCopy:
      return false;
  }
  return false;
}

bool is_staging(std::span<const Operand> operands) {
  return !operands.empty() &&
         std::all_of(operands.begin(), operands.end(),
                     [](const Operand& operand) { return operand.space == Space::kStaging; });
}

std::string_view name_of(StepKind kind) {
  switch (kind) {
    case StepKind::kSend:
      return "send to";
    case StepKind::kReceive:
      return "receive from";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kCopy:
      return "copy";
    case StepKind::kSignal:
      return "notify";
    case StepKind::kWait:
      return "await";
  }
  return "";
}

Result<std::byte*> address_within(std::span<std::byte> window, std::uint64_t offset,
                                  std::uint64_t bytes) {
  if (offset > window.size() || bytes > window.size() - offset)
    return KOLO_ERROR(kInternal, "its {} bytes at {} are not within its window of {}", bytes,
                      offset, window.size());
  return window.data() + offset;
}

}  // namespace

StepId Executor::ReadyQueue::pop() {
  const StepId id = steps_[head_++];
  if (empty()) clear();
  return id;
}

void Executor::ReadyQueue::clear() {
  steps_.clear();
  head_ = 0;
}

Executor::Executor(Transport& transport, const Device& device, Timeline* timeline)
    : transport_(transport), local_(device), trace_(timeline) {}

void Executor::start(std::shared_ptr<const Schedule> schedule, MemoryBinding binding,
                     std::uint32_t communicator, std::uint64_t operation,
                     std::span<const int> ranks, std::uint64_t call) {
  KOLO_CHECK(done());
  KOLO_CHECK(ranks.size() == static_cast<std::size_t>(schedule->size));
  if (schedule != schedule_) {
    schedule_ = std::move(schedule);
    index_schedule();
  }
  binding_ = std::move(binding);
  binding_.peers.resize(std::max(binding_.peers.size(), binding_.mapped.windows.size()));
  tag_ = {.communicator = communicator, .step = 0, .operation = operation, .call = call};
  ranks_.assign(ranks.begin(), ranks.end());
  status_ = {};
  pending_transfers_ = 0;
  transfers_ready_.clear();
  local_ready_.clear();
  idle_ready_.clear();
  queues_[0].start(binding_.stream);
  queues_[1].start(binding_.back_stream);
  passed_.assign(binding_.back_stream != nullptr ? schedule_->steps.size() : 0, nullptr);
  arrived_.reset();

  trace_.start(*schedule_, operation,
               {size_of(binding_.type), size_of(partial_type(binding_.type, binding_.op))});
  const std::size_t steps = schedule_->steps.size();
  remaining_ = steps;
  transfers_.resize(transfer_count_);
  signals_.resize(transfer_count_);
  waiting_for_.resize(steps);
  for (std::size_t i = 0; i < steps; ++i) {
    const auto id = static_cast<StepId>(i);
    if (is_transfer(schedule_->steps[i].kind))
      transfers_[transfer_index_[i]] = Transfer(*this, id, networked_of(id));
    waiting_for_[i] = schedule_->steps[i].dependency_count;
    if (waiting_for_[i] == 0) enqueue(id);
  }
}

void Executor::index_schedule() {
  const std::size_t steps = schedule_->steps.size();
  transfer_count_ = 0;
  transfer_index_.assign(steps, 0);
  engines_.resize(steps);
  successor_begin_.assign(steps + 1, 0);
  for (std::size_t i = 0; i < steps; ++i) {
    const Step& step = schedule_->steps[i];
    engines_[i] = engine_of(*schedule_, step);
    if (engines_[i] == Engine::kHost) transfer_index_[i] = transfer_count_++;
    for (const StepId dependency : schedule_->depends_on(step)) ++successor_begin_[dependency + 1];
  }
  for (std::size_t i = 0; i < steps; ++i) successor_begin_[i + 1] += successor_begin_[i];

  index_peers();
  successors_.resize(schedule_->dependencies.size());
  waiting_for_.assign(successor_begin_.begin(),
                      successor_begin_.end() - 1);  // used as fill positions
  for (std::size_t i = 0; i < steps; ++i)
    for (const StepId dependency : schedule_->depends_on(schedule_->steps[i]))
      successors_[waiting_for_[dependency]++] = static_cast<StepId>(i);
}

void Executor::index_peers() {
  peer_extents_.assign(static_cast<std::size_t>(schedule_->size), {});
  const auto cover = [&](const Operand& operand, Role role) {
    // A rank outside the communicator has no memory; its step reports the error.
    const auto rank = static_cast<std::size_t>(operand.rank);
    if (operand.space != Space::kPeer || rank >= peer_extents_.size()) return;
    PeerExtent& extent = peer_extents_[rank];
    extent.scratch = std::max(extent.scratch, operand.offset + operand.length);
    if (operand.direct == Operand::kNowhere) return;
    std::uint64_t& direct = role == Role::kSource ? extent.input : extent.output;
    direct = std::max(direct, operand.direct + operand.length);
  };
  for (const Step& step : schedule_->steps) {
    for (const Operand& source : schedule_->sources(step)) cover(source, Role::kSource);
    for (const Operand& destination : schedule_->destinations(step))
      cover(destination, Role::kDestination);
  }
}

void Executor::enqueue(StepId id) {
  if (is_transfer(schedule_->steps[id].kind)) {
    transfers_ready_.push(id);
  } else if (successor_begin_[id] != successor_begin_[id + 1]) {
    local_ready_.push(id);
  } else {
    idle_ready_.push(id);
  }
}

Executor::Engine Executor::engine_of(const Schedule& schedule, const Step& step) {
  if (is_transfer(step.kind)) return Engine::kHost;
  if (!is_staging(schedule.sources(step))) return Engine::kDevice;
  return is_staging(schedule.destinations(step)) ? Engine::kStaging : Engine::kDeviceBack;
}

bool Executor::advance() {
  bool worked = poll_device();
  for (std::size_t bytes = 0; bytes < kBytesPerAdvance && take_arrivals();) {
    if (!transfers_ready_.empty()) {
      post_transfer(transfers_ready_.pop());
    } else if (!local_ready_.empty()) {
      bytes += run_local(local_ready_.pop());
    } else if (!idle_ready_.empty()) {
      bytes += run_local(idle_ready_.pop());
    } else {
      break;
    }
    worked = true;
  }
  mark_device();
  return worked;
}

bool Executor::poll_device() {
  bool released = false;
  if (binding_.stream == nullptr) return released;
  for (DeviceQueue& queue : queues_) {
    if (failed()) break;
    const auto polled = queue.poll([this](StepId id) { release(id); });
    if (!polled.ok()) fail(queue.oldest(), polled.error());
    released |= polled.ok() && *polled;
  }
  return released;
}

bool Executor::take_arrivals() {
  if (const auto last = std::exchange(arrived_, std::nullopt); last && !failed()) {
    const Status taken = binding_.stream->accelerator().take_network_writes();
    if (!taken.ok()) fail(*last, taken.error());
  }
  return !failed();
}

void Executor::mark_device() {
  if (binding_.stream == nullptr) return;
  for (DeviceQueue& queue : queues_) {
    if (failed()) return;
    const Status marked = queue.mark();
    if (!marked.ok()) fail(queue.oldest(), marked.error());
  }
}

void Executor::leave_device() {
  for (DeviceQueue& queue : queues_) queue.end();
  passed_.clear();
}

// One stream runs its steps in order. For a dependency on the other stream, this stream waits for
// an event; the host does not wait.
Status Executor::enqueue_on_device(StepId id) {
  const Step& step = schedule_->steps[id];
  DeviceQueue& queue = queue_of(id);
  const auto is_on_the_other = [&](StepId other) {
    return is_on_device(other) && &queue_of(other) != &queue;
  };
  if (!passed_.empty())
    for (const StepId before : schedule_->depends_on(step))
      if (is_on_the_other(before)) KOLO_TRY(queue.stream().wait(*passed_[before]));
  KOLO_TRY(queue.enqueue(*schedule_, step, binding_));
  if (passed_.empty()) return {};
  const auto after =
      std::span(successors_)
          .subspan(successor_begin_[id], successor_begin_[id + 1] - successor_begin_[id]);
  if (std::any_of(after.begin(), after.end(), is_on_the_other)) {
    KOLO_ASSIGN(passed_[id], queue.stream().record());
  }
  return {};
}

void Executor::post_transfer(StepId id) {
  const Step& step = schedule_->steps[id];
  const auto data = message_of(id);
  if (!data.ok()) return fail(id, data.error());
  Tag tag = tag_;
  tag.step = step.tag;
  Transfer& transfer = transfers_[transfer_index_[id]];
  const int peer = ranks_[static_cast<std::size_t>(step.peer)];
  ++pending_transfers_;
  trace_.begin(id);
  if (step.kind == StepKind::kSend || step.kind == StepKind::kSignal) {
    transport_.send(peer, tag, *data, transfer);
  } else {
    transport_.receive(peer, tag, *data, transfer);
  }
}

const MemoryRegion* Executor::networked_of(StepId id) const {
  const Step& step = schedule_->steps[id];
  const auto is_staged = [](std::span<const Operand> operands) {
    return !operands.empty() && operands.front().space == Space::kStaging;
  };
  const bool staged =
      is_staged(schedule_->sources(step)) || is_staged(schedule_->destinations(step));
  return staged ? binding_.networked : nullptr;
}

// A signal carries the offsets of its sender's memory within its window.
Result<std::span<std::byte>> Executor::message_of(StepId id) {
  const Step& step = schedule_->steps[id];
  switch (step.kind) {
    case StepKind::kSend:
      return contiguous(schedule_->sources(step).front());
    case StepKind::kReceive:
      return contiguous(schedule_->destinations(step).front());
    case StepKind::kSignal:
      return std::as_writable_bytes(std::span(&binding_.mapped.own, 1));
    case StepKind::kWait:
      return std::as_writable_bytes(std::span(&signals_[transfer_index_[id]], 1));
    case StepKind::kReduce:
    case StepKind::kCopy:
      break;
  }
  KOLO_CHECK(false);
  return std::span<std::byte>();
}

Status Executor::take_signal(StepId id) {
  const auto peer = static_cast<std::size_t>(schedule_->steps[id].peer);
  if (peer >= binding_.mapped.windows.size()) return {};  // a schedule without mapped scratch
  PeerMemory& memory = binding_.peers[peer];
  if (memory.scratch != nullptr) return {};  // all signals of a peer carry the same offsets
  const std::span<std::byte> window = binding_.mapped.windows[peer];
  const PeerExtent& extent = peer_extents_[peer];
  if (extent == PeerExtent()) return {};  // the schedule reaches none of the peer's memory
  const WindowOffsets& offsets = signals_[transfer_index_[id]];
  const std::size_t element = size_of(binding_.type);
  KOLO_TRY(find_pieces(window, offsets.input, binding_.input, extent.input, memory.input));
  KOLO_TRY(find_pieces(window, offsets.output, binding_.output, extent.output, memory.output));
  KOLO_ASSIGN(memory.scratch, address_within(window, offsets.scratch, extent.scratch * element));
  return {};
}

/// Finds the peer's counterpart of `own`, if the schedule reaches it. Only then the peer waits for
/// this rank before it reuses its slot, which holds the list of offsets.
Status Executor::find_pieces(std::span<std::byte> window, std::uint64_t offset,
                             const SegmentList& own, std::uint64_t extent,
                             SegmentList& pieces) const {
  if (offset == WindowOffsets::kNowhere || extent == 0) return {};
  const std::size_t element = size_of(binding_.type);
  if (own.size() < 2) {  // the lengths may differ between ranks
    KOLO_ASSIGN(std::byte * data, address_within(window, offset, extent * element));
    pieces.append(data, extent);
    return {};
  }
  constexpr std::size_t kEntry = sizeof(std::uint64_t);
  KOLO_ASSIGN(const std::byte* const list, address_within(window, offset, own.size() * kEntry));
  for (std::size_t i = 0; i < own.size(); ++i) {
    std::uint64_t at = 0;
    std::memcpy(&at, list + i * kEntry, kEntry);
    const std::uint64_t elements = own.segments()[i].elements;
    KOLO_ASSIGN(std::byte * data, address_within(window, at, elements * element));
    pieces.append(data, elements);
  }
  return {};
}

void Executor::on_transfer_done(Transfer& transfer) {
  --pending_transfers_;
  const StepId id = transfer.id();
  Status status = transfer.status();
  const StepKind kind = schedule_->steps[id].kind;
  if (status.ok() && kind == StepKind::kWait) status = take_signal(id);
  if (kind == StepKind::kReceive && transfer.memory() != nullptr) arrived_ = id;
  if (status.ok()) {
    finish_step(id);
  } else {
    fail(id, status.error());
  }
}

std::size_t Executor::run_local(StepId id) {
  const Step& step = schedule_->steps[id];
  trace_.begin(id);
  const Status status =
      is_on_device(id) ? enqueue_on_device(id) : local_.run(*schedule_, step, binding_);
  if (!status.ok()) {
    fail(id, status.error());
    return 0;
  }
  std::uint64_t elements = 0;
  for (const Operand& operand : schedule_->destinations(step)) elements += operand.length;
  finish_step(id);
  return elements * size_of(binding_.type);
}

void Executor::finish_step(StepId id) {
  trace_.end(id);
  --remaining_;
  for (std::uint32_t i = successor_begin_[id]; i < successor_begin_[id + 1]; ++i) {
    const StepId next = successors_[i];
    if (is_on_device(id) && !is_on_device(next)) {
      queue_of(id).hold(next);
    } else {
      release(next);
    }
  }
}

void Executor::release(StepId id) {
  if (--waiting_for_[id] == 0) enqueue(id);
}

void Executor::fail(StepId id, const Error& error) {
  if (failed()) return;  // later failures only follow from the first one
  status_ = Error{error.code,
                  fmt::format("rank {}: {}: {}: {}", own_rank(), schedule_->algorithm, describe(id),
                              error.message),
                  error.file, error.line};
}

Result<std::span<std::byte>> Executor::contiguous(const Operand& operand) const {
  const Segment piece = resolve(binding_, operand, Role::kSource, 0);
  if (piece.elements < operand.length)
    return KOLO_ERROR(kInternal,
                      "elements {} … {} of space {} (rank {}) are not bound to contiguous memory",
                      operand.offset, operand.offset + operand.length,
                      static_cast<int>(operand.space), operand.rank);
  return std::span(piece.data, operand.length * size_of(type_of(binding_, operand)));
}

std::string Executor::describe(StepId id) const {
  const Step& step = schedule_->steps[id];
  std::string text = fmt::format("step {} ({}", id, name_of(step.kind));
  if (is_transfer(step.kind))
    text += fmt::format(" rank {}, tag {}", ranks_[static_cast<std::size_t>(step.peer)], step.tag);
  return text + ")";
}

int Executor::own_rank() const { return ranks_[static_cast<std::size_t>(schedule_->rank)]; }

std::string Executor::dump_state() const {
  if (schedule_ == nullptr) return "never started";
  const std::size_t steps = schedule_->steps.size();
  std::string text = fmt::format(
      "{} of rank {}, {} ranks, {} elements to {}, operation {}: {} of {} steps done, {} transfers "
      "under way",
      schedule_->algorithm, own_rank(), schedule_->size, schedule_->input_elements,
      schedule_->output_elements, tag_.operation, steps - remaining_, steps, pending_transfers_);
  if (failed()) text += fmt::format("; failed: {}", status_.error().message);

  std::size_t shown = 0;
  for (std::size_t i = 0; i < steps && shown < kStepsInDump; ++i) {
    if (!is_transfer(schedule_->steps[i].kind)) continue;
    if (transfers_[transfer_index_[i]].state() != Transfer::State::kPending) continue;
    text +=
        fmt::format("{}{}", shown++ == 0 ? "; waits for " : ", ", describe(static_cast<StepId>(i)));
  }
  if (shown < pending_transfers_) text += fmt::format(" and {} more", pending_transfers_ - shown);
  return text;
}

}  // namespace kolo
