#include "runtime/operation/planned_operation.h"

#include <fmt/format.h>

namespace kolo {

Scales PlannedOperation::scales() const {
  const Signature& call = signature();
  const std::int64_t divisor = call.op == ReduceOp::kAverage ? participants : 1;
  return scales_of(call.type, call.op, call.prescale, call.postscale, divisor);
}

bool PlannedOperation::is_whole() const {
  const OperationKind kind = signature().kind;
  return kind == OperationKind::kAllreduce || kind == OperationKind::kBroadcast;
}

std::size_t PlannedOperation::input_bytes(const Entry& entry) const {
  if (entry.absent || entry.input == nullptr) return 0;
  if (is_whole()) return entry.signature.bytes();
  return layout.input_elements * size_of(entry.signature.type);
}

std::size_t PlannedOperation::output_bytes(const Entry& entry) const {
  if (is_whole()) return entry.signature.bytes();
  return layout.output_elements * size_of(entry.signature.type);
}

bool PlannedOperation::lies_in_place(const Communicator& communicator) const {
  const Entry& entry = first();
  const std::size_t own_offset = layout.own_offset * size_of(entry.signature.type);
  const bool is_root = communicator.index_of(entry.signature.root) == communicator.rank();
  const OperationKind kind = entry.signature.kind;
  if (kind == OperationKind::kAllgather || (kind == OperationKind::kGather && is_root))
    return entry.output != nullptr && entry.input == entry.output + own_offset;
  if (kind == OperationKind::kScatter && is_root)
    return entry.input != nullptr && entry.output == entry.input + own_offset;
  return false;
}

std::string PlannedOperation::describe(const Communicator& communicator) const {
  std::string text = fmt::format("{} '{}'", to_string(signature().kind), first().name);
  if (entries.size() > 1) text += fmt::format(" and {} more", entries.size() - 1);
  return text + communicator.suffix();
}

CallShape shape_of(const PlannedOperation& plan, const Communicator& communicator) {
  const Signature& signature = plan.signature();
  const auto exchanged = exchange_of(plan, communicator);
  CallShape shape{.kind = signature.kind,
                  .mode = plan.mode,
                  .type = signature.type,
                  .op = signature.op,
                  .on_device = signature.on_device,
                  .root = communicator.index_of(signature.root).value_or(0),
                  .tensors = plan.entries.size(),
                  .counts = plan.layout.counts,
                  .input_elements = exchanged ? exchanged->count : plan.layout.input_elements,
                  .in_place = plan.lies_in_place(communicator),
                  .meets_first = plan.meets_first};
  for (const EntryPtr& entry : plan.entries) {
    const std::uint64_t elements = entry->signature.elements();
    const bool is_last = &entry == &plan.entries.back();
    shape.elements += elements;
    shape.device_elements += elements + (is_last ? 0 : device_gap(signature.type, elements));
  }
  if (plan.mode == SubmissionMode::kPointToPoint) {
    // A receive from this rank itself has its send beside it.
    shape.tensors = 1;
    shape.elements = shape.device_elements = signature.elements();
  }
  return shape;
}

std::optional<Exchange::Request> exchange_of(const PlannedOperation& plan,
                                             const Communicator& communicator) {
  const Signature& signature = plan.signature();
  if (plan.mode != SubmissionMode::kInOrder || !is_ordered_kind(signature.kind))
    return std::nullopt;
  const Scales scales = plan.scales();
  const auto size = static_cast<std::uint64_t>(communicator.size());
  const bool scatters = signature.kind == OperationKind::kScatter;
  return Exchange::Request{
      .kind = signature.kind,
      .type = signature.type,
      .op = signature.op,
      .root = is_rooted(signature.kind) ? communicator.index_of(signature.root).value_or(0) : 0,
      .prescale = scales.pre,
      .postscale = scales.post,
      .input = plan.first().input,
      .output = plan.first().output,
      .count = scatters ? size * plan.layout.output_elements : plan.layout.input_elements,
      .sequence = plan.sequence,
      .before = plan.before};
}

std::uint64_t bytes_ahead(const PlannedOperation& plan, const Communicator& communicator) {
  const OperationKind kind = plan.signature().kind;
  const bool scatters = kind == OperationKind::kScatter;
  const std::uint64_t part =
      scatters ? plan.output_bytes(plan.first()) : plan.input_bytes(plan.first());
  const int senders = kind == OperationKind::kGather ? communicator.size() - 1 : 1;
  return static_cast<std::uint64_t>(senders) * (part + thresholds::kWaitingMessage);
}

std::uint64_t call_of(const PlannedOperation& plan, const Communicator& communicator) {
  const auto request = exchange_of(plan, communicator);
  return request ? Exchange::call_fingerprint(*request, communicator) : 0;
}

}  // namespace kolo
