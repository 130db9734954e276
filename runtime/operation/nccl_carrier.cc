#include "runtime/operation/nccl_carrier.h"

#include "runtime/base/check.h"
#include "runtime/device/partial_sums.h"

#include <algorithm>
#include <utility>

namespace kolo {

Status NcclCarrier::begin(const Route&, const PlannedOperation& operation) {
  memory_.reset(operation);
  MemoryBinding binding;
  KOLO_TRY(memory_.bind(operation, stream_.get(), /*spaced=*/false, binding));
  const std::size_t element = size_of(binding.type);
  const Signature& signature = operation.signature();
  NcclAllreduce::Plan plan{.type = binding.type,
                           .op = binding.op,
                           .prescale = binding.prescale,
                           .postscale = binding.postscale};
  // NCCL's partial sums have the half type. If inputs are divided first, sums overflow only if the
  // average does.
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
    KOLO_ASSIGN(plan.buffer,
                memory_.borrow(binding.input.elements() * element, MemoryKind::kDevice));
  }
  return allreduce_.start(group_.nccl, operation.mode, *stream_, std::move(plan));
}

Result<bool> NcclCarrier::advance_to_enqueued(bool&) { return allreduce_.advance(); }

}  // namespace kolo
