// An all-reduce of the accelerator's memory through NCCL (KOLO_OPERATIONS=nccl): the same entries,
// fused alike, but no schedule. Token holder only.
#include "runtime/operation.h"

#include <algorithm>
#include <utility>

namespace kolo {

bool Operation::runs_over_nccl() const {
  return nccl_.wanted() && plan_.entries.front()->signature.kind == OperationKind::kAllreduce;
}

Status Operation::start_over_nccl() {
  over_nccl_ = true;
  phase_ = Phase::kRuns;
  MemoryBinding binding;
  KOLO_TRY(bind(binding));
  const std::size_t element = size_of(binding.type);
  const Signature& signature = plan_.entries.front()->signature;
  NcclAllreduce::Plan plan{.type = binding.type,
                           .op = binding.op,
                           .prescale = binding.prescale,
                           .postscale = binding.postscale};
  // NCCL's partial sums are of the half type: divided before, they overflow only if the average
  // does.
  if (is_half(signature.type) && rounds(signature.op)) {
    plan.prescale = {signature.prescale, binding.postscale.divisor};
    plan.postscale = {signature.postscale};
  }
  for (std::uint64_t at = 0; at < binding.input.elements();) {
    const Segment input = binding.input.rest_at(at, element);
    const Segment output = binding.output.rest_at(at, element);
    const std::uint64_t count = std::min(input.elements, output.elements);
    plan.pieces.push_back({input.data, output.data, count});
    at += count;
  }
  if (plan.pieces.size() > 1) {
    KOLO_ASSIGN(plan.buffer, borrow(binding.input.elements() * element, MemoryKind::kDevice));
  }
  return nccl_allreduce_.start(nccl_, plan_.door, *stream_, std::move(plan));
}

bool Operation::advance_over_nccl() {
  if (phase_ == Phase::kDrains) {
    device_status_ = nccl_allreduce_.check();
    return false;
  }
  const auto handed_in = nccl_allreduce_.advance();
  if (!handed_in.ok()) device_status_ = handed_in.error();
  if (!handed_in.ok() || !*handed_in) return false;
  device_status_ = enter_drain();
  return true;
}

}  // namespace kolo
