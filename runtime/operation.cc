#include "runtime/operation.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kolo {

Operation::Operation(const Communicator& communicator, Transport& transport, const Device& device,
                     Arena& arena, HostWindow& window, ScheduleCache& schedules,
                     const Config& config)
    : communicator_(communicator),
      arena_(arena),
      window_(window),
      schedules_(schedules),
      config_(config),
      executor_(transport, device) {}

Status Operation::start(PlannedOperation plan) {
  plan_ = std::move(plan);
  started_at_ = Clock::now();
  std::shared_ptr<const Schedule> schedule = choose();
  MemoryBinding binding;
  bind(binding);
  KOLO_TRY(bind_scratch(*schedule, binding));
  executor_.start(std::move(schedule), std::move(binding), communicator_.tag_space(plan_.door),
                  plan_.sequence, communicator_.ranks());
  return {};
}

Operation::~Operation() { free_scratch(); }

Status Operation::bind_scratch(const Schedule& schedule, MemoryBinding& binding) {
  if (schedule.scratch_elements == 0) return {};
  if (schedule.scratch_is_mapped) {
    slot_ = window_.take_slot();
    peer_windows_.clear();
    for (const int rank : communicator_.ranks())
      peer_windows_.push_back(window_.windows()[static_cast<std::size_t>(rank)]);
    binding.mapped = {*slot_, peer_windows_};
    binding.scratch = peer_windows_[static_cast<std::size_t>(communicator_.rank())].data() + *slot_;
    return {};
  }
  const std::size_t bytes = schedule.scratch_elements * size_of(binding.type);
  KOLO_ASSIGN(scratch_, arena_.allocate(bytes, MemoryKind::kHeap));
  binding.scratch = scratch_.data();
  return {};
}

void Operation::free_scratch() {
  scratch_ = {};
  if (slot_) window_.give_back_slot(*slot_);
  slot_.reset();
}

std::shared_ptr<const Schedule> Operation::choose() const {
  const Signature& signature = plan_.entries.front().signature;
  ScheduleRequest request;
  request.rank = communicator_.rank();
  request.size = communicator_.size();
  request.count = elements();
  request.chunk_elements = static_cast<std::uint64_t>(config_.chunk_size) / size_of(signature.type);
  request.blocks_in_flight = static_cast<int>(config_.chunks_in_flight);
  switch (signature.kind) {
    case OperationKind::kAllreduce:
      request.collective = Collective::kAllreduce;
      if (window_.covers(communicator_))
        request.mapped_elements = window_.slot_bytes() / size_of(signature.type);
      request.placement = plan_.entries.size() > 1 ? Placement::kPacked : Placement::kInPlace;
      break;
    case OperationKind::kBroadcast:
      request.collective = Collective::kBroadcast;
      request.root = signature.root;
      break;
  }
  return schedules_.get(request);
}

void Operation::bind(MemoryBinding& binding) const {
  const Signature& signature = plan_.entries.front().signature;
  binding.type = signature.type;
  binding.prescale.factor = signature.prescale;
  binding.postscale.factor = signature.postscale;
  if (signature.op == ReduceOp::kAverage) binding.postscale.divisor = communicator_.size();
  for (const Entry& entry : plan_.entries) {
    const std::uint64_t count = entry.signature.elements();
    if (entry.absent) std::memset(entry.output, 0, entry.signature.bytes());
    // The schedule only reads its input space.
    auto* input = entry.absent ? entry.output : const_cast<std::byte*>(entry.input);
    binding.input.append(input, count);
    binding.output.append(entry.output, count);
  }
}

std::uint64_t Operation::elements() const {
  std::uint64_t count = 0;
  for (const Entry& entry : plan_.entries) count += entry.signature.elements();
  return count;
}

PlannedOperation Operation::finish() {
  free_scratch();
  return std::exchange(plan_, {});
}

std::string Operation::describe() const {
  const Entry& first = plan_.entries.front();
  std::string text = fmt::format("{} '{}'", to_string(first.signature.kind), first.name);
  if (plan_.entries.size() > 1) text += fmt::format(" and {} more", plan_.entries.size() - 1);
  return text;
}

}  // namespace kolo
