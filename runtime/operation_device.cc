// An operation on the accelerator's memory. Where all its ranks have mapped each other's devices,
// its schedule runs on them, on a stream of its own: steps are handed in and follow each other
// there, and the host waits for the device only before it tells another rank. So does what is large
// and goes over the network, piece by piece, on a stream each way (operation_device_hosts.cc). Else
// the memory is staged: copied to pinned memory of the host, where the schedule runs as for any
// memory, and back.
// Token holder only.
#include "runtime/base/check.h"
#include "runtime/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kolo {
namespace {

/// Of a lane of what is moved and not summed: long enough for a device's whole width.
constexpr std::size_t kMovedBlock = 4 << 20;
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Status Operation::start_on_device() {
  Accelerator* const accelerator = devices_.accelerator();
  if (accelerator == nullptr)
    return KOLO_ERROR(kUnsupported, "it has no CUDA device: {}", devices_.no_accelerator());
  if (stream_ == nullptr) {
    KOLO_ASSIGN(stream_, accelerator->new_stream());
  }
  phase_ = Phase::kStagesIn;
  for (const EntryPtr& entry : plan_.entries) {
    if (entry->ready != nullptr) KOLO_TRY(stream_->wait(*entry->ready));
    if (!entry->allocate || !entry->stream) continue;
    KOLO_ASSIGN(const auto allocated, accelerator->record(entry->stream->handle));
    KOLO_TRY(stream_->wait(*allocated));
  }
  if (runs_over_nccl()) return start_over_nccl();
  const auto request = device_request();
  if (!request) return stage_in();
  MemoryBinding binding;
  KOLO_TRY(bind(binding));
  binding.stream = stream_.get();
  std::shared_ptr<const Schedule> schedule = schedules_.get(*request);
  KOLO_TRY(bind_staging(*request, *schedule, binding));
  if (schedule->scratch_elements > 0) {
    device_slot_ = devices_.take_slot(place_);
    // The peers read and write memory of the arena where it is: what is to be copied to the slot is
    // left out then, but for its place among the steps. A notice that it is there still waits for
    // the stream, which waits for what the user's has yet to write.
    WindowPlaces places = places_of(binding);
    places.scratch = *device_slot_;
    UsersMemory& users = window_.users_memory();
    binding.mapped = {places, device_windows_, users.is_open() ? &users : nullptr,
                      communicator_.ranks()};
    binding.scratch =
        device_windows_[static_cast<std::size_t>(communicator_.rank())].data() + *device_slot_;
  }
  run(std::move(schedule), std::move(binding));
  return {};
}

std::optional<ScheduleRequest> Operation::device_request() const {
  if (runs_on_device()) return request_on_device();
  if (runs_over_hosts()) return request_over_hosts();
  return request_in_pieces();
}

bool Operation::runs_on_device() const {
  const Signature& signature = plan_.entries.front()->signature;
  if (plan_.door == Door::kPointToPoint) return false;
  if (communicator_.size() == 1) return true;
  if (!devices_.covers(communicator_, place_) || signature.op == ReduceOp::kAdasum) return false;
  const auto lane = devices_.slot_bytes(place_) / kMappedLanes / size_of(signature.type);
  if (lane < static_cast<std::size_t>(communicator_.size()) * kAlignment) return false;
  switch (signature.kind) {
    case OperationKind::kAllreduce:
    case OperationKind::kBroadcast:
    case OperationKind::kAllgather:
    case OperationKind::kAlltoall:
    case OperationKind::kReduceScatter:
      return true;
    case OperationKind::kGather:
    case OperationKind::kScatter:
    case OperationKind::kBarrier:
    case OperationKind::kJoin:
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet:
    case OperationKind::kSend:
    case OperationKind::kReceive:
      break;
  }
  return false;
}

ScheduleRequest Operation::request_on_device() const {
  ScheduleRequest request = base_request();
  const std::size_t element = size_of(plan_.entries.front()->signature.type);
  request.algorithm = Algorithm::kMapped;
  const bool sums = request.collective == Collective::kAllreduce;
  const std::size_t slot = devices_.slot_bytes(place_);
  request.mapped_elements = (sums ? slot : std::min(slot, kMappedLanes * kMovedBlock)) / element;
  if (communicator_.size() == 1)  // nothing but copies, of any length
    request.mapped_elements = std::max(request.mapped_elements, kMappedLanes * kMovedBlock);
  if (sums) request.owners = device_leaders_;
  return request;
}

void Operation::run(std::shared_ptr<const Schedule> schedule, MemoryBinding binding) {
  phase_ = Phase::kRuns;
  executor_.start(std::move(schedule), std::move(binding), communicator_.tag_space(plan_.door),
                  plan_.sequence, communicator_.ranks(), call());
}

bool Operation::is_whole() const {
  const OperationKind kind = plan_.entries.front()->signature.kind;
  return kind == OperationKind::kAllreduce || kind == OperationKind::kBroadcast;
}

std::size_t Operation::input_bytes(const Entry& entry) const {
  if (entry.absent || entry.input == nullptr) return 0;
  if (is_whole()) return entry.signature.bytes();
  return plan_.layout.input_elements * size_of(entry.signature.type);
}

std::size_t Operation::output_bytes(const Entry& entry) const {
  if (is_whole()) return entry.signature.bytes();
  return plan_.layout.output_elements * size_of(entry.signature.type);
}

// One block of pinned memory for all inputs and outputs; in place stays in place.
Status Operation::stage_in() {
  // Beside a receive from oneself stands its send, whose input the receive has.
  const std::size_t staged = is_whole() ? plan_.entries.size() : 1;
  std::size_t total = kAlignment;
  for (std::size_t i = 0; i < staged; ++i)
    total += aligned(input_bytes(*plan_.entries[i])) + aligned(output_bytes(*plan_.entries[i]));
  KOLO_ASSIGN(std::byte * next, borrow(total, MemoryKind::kPinned));

  const bool in_place = lies_in_place();
  for (std::size_t i = 0; i < staged; ++i) {
    const Entry& entry = *plan_.entries[i];
    const std::size_t bytes = input_bytes(entry);
    const std::size_t own = plan_.layout.own_offset * size_of(entry.signature.type);
    const bool scatters = entry.signature.kind == OperationKind::kScatter;
    std::byte* output = next;
    std::byte* input = output;
    if (in_place && !scatters) {
      input = output + own;
    } else if (entry.input != entry.output && !entry.absent) {
      input = output + aligned(output_bytes(entry));
    }
    if (in_place && scatters) output = input + own;
    next += aligned(output_bytes(entry)) + aligned(bytes);
    memory_[i] = {input, output};
    if (bytes > 0) KOLO_TRY(stream_->copy(input, entry.input, bytes));
  }
  staged_ = true;
  KOLO_ASSIGN(handed_in_, stream_->record());
  return {};
}

Status Operation::run_staged() {
  MemoryBinding binding;
  KOLO_TRY(bind(binding));
  std::shared_ptr<const Schedule> schedule = choose({});
  choice_.reset();  // its time is not that of messages alone
  KOLO_TRY(bind_scratch(*schedule, {}, binding));
  run(std::move(schedule), std::move(binding));
  return {};
}

Status Operation::stage_out() {
  for (std::size_t i = 0; i < (is_whole() ? plan_.entries.size() : 1); ++i) {
    const Entry& entry = *plan_.entries[i];
    const std::size_t bytes = output_bytes(entry);
    if (entry.output == nullptr || bytes == 0) continue;
    KOLO_TRY(stream_->copy(entry.output, memory_[i].output, bytes));
  }
  return {};
}

Result<std::shared_ptr<DeviceEvent>> Operation::record_all() {
  if (back_stream_ != nullptr) {
    KOLO_ASSIGN(const auto event, back_stream_->record());
    KOLO_TRY(stream_->wait(*event));
  }
  return stream_->record();
}

Status Operation::enter_drain() {
  KOLO_ASSIGN(handed_in_, record_all());
  phase_ = Phase::kDrains;
  return {};
}

bool Operation::advance_on_device() {
  if (!device_status_.ok()) return false;
  const bool moved = advance_phase();
  if (!device_status_.ok()) {
    Error error = device_status_.error();
    error.message = fmt::format("rank {}: {}", communicator_.rank(), error.message);
    device_status_ = std::move(error);
  }
  return moved;
}

bool Operation::advance_phase() {
  bool moved = false;
  const auto reached = [&] {
    const auto done = handed_in_->is_done();
    if (!done.ok()) device_status_ = done.error();
    return done.ok() && *done;
  };
  if (phase_ == Phase::kStagesIn && reached()) {
    device_status_ = run_staged();
    moved = true;
  }
  if (over_nccl_ && phase_ != Phase::kDone) {
    moved |= advance_over_nccl();
  } else if (phase_ == Phase::kRuns) {
    moved |= executor_.advance();
    if (executor_.done() && !executor_.failed()) {
      free_slot();  // the next set of this place may start before the device is done
      if (staged_) device_status_ = stage_out();
      if (device_status_.ok()) device_status_ = enter_drain();
      return true;
    }
  }
  if (phase_ == Phase::kDrains && device_status_.ok() && reached()) {
    phase_ = Phase::kDone;
    moved = true;
  }
  return moved;
}

// After a failure: whoever owns the memory may free it then.
void Operation::leave_device() {
  if (phase_ != Phase::kNone && phase_ != Phase::kDone && stream_ != nullptr) {
    if (const auto event = record_all(); event.ok()) {
      const Status drained = (*event)->synchronize();
      static_cast<void>(drained);  // a device that has failed does nothing any more
    }
  }
  executor_.leave_device();
  phase_ = Phase::kNone;
  staged_ = false;
  over_nccl_ = false;
  handed_in_.reset();
  if (device_slot_) devices_.give_back_slot(place_, *device_slot_);
  device_slot_.reset();
}

}  // namespace kolo
