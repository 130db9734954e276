#include "runtime/cycle/cycle_trace.h"

#include "runtime/submission/recorded.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// Elements of the larger side: this rank's input or output.
std::uint64_t elements_of(const PlannedOperation& plan) {
  if (plan.entries.size() == 1 && is_row_wise(plan.entries.front()->signature.kind)) {
    return std::max(plan.layout.input_elements, plan.layout.output_elements);
  }
  std::uint64_t count = 0;
  for (const EntryPtr& entry : plan.entries) count += entry->signature.elements();
  return count;
}

std::uint64_t traced_bytes(const PlannedOperation& plan) {
  return elements_of(plan) * size_of(plan.entries.front()->signature.type);
}

std::string_view code_of(const Status& status) {
  return status.ok() ? std::string_view() : to_string(status.error().code);
}

}  // namespace

void CycleTrace::stamp(std::span<EntryPtr> entries, Clock::time_point Entry::*when) {
  if (!timeline_.on() || entries.empty()) return;
  const auto now = Clock::now();
  for (EntryPtr& entry : entries) (*entry).*when = now;
}

void CycleTrace::message(Entry& entry) {
  if (!recorder_.on()) return;
  entry.record = recorder_.submitted(recorded(entry, SubmissionMode::kPointToPoint));
}

void CycleTrace::planned(const Communicator& communicator, PlannedOperation& operation,
                         std::uint64_t fingerprint) {
  stamp(operation.entries, &Entry::agreed_at);
  if (!recorder_.on()) return;
  FlightRecorder::Tensor first = recorded(operation.first(), operation.mode);
  first.process_set = communicator.id();  // a joined rank's entry does not state it
  operation.record = recorder_.planned({.first = first,
                                        .sequence = operation.sequence,
                                        .fingerprint = fingerprint,
                                        .tensors = operation.entries.size()});
  if (operation.mode != SubmissionMode::kPointToPoint) return;
  for (const EntryPtr& entry : operation.entries) recorder_.agreed(entry->record);
}

void CycleTrace::starting(PlannedOperation& operation) {
  if (recorder_.on()) recorder_.started(operation.record);
  if (!timeline_.on()) return;
  stamp(operation.entries, &Entry::started_at);
  count(static_cast<std::int64_t>(traced_bytes(operation)), 1);
}

void CycleTrace::ended(const Communicator& communicator, const Operation& operation,
                       const Status& status) {
  const PlannedOperation& plan = operation.plan();
  if (recorder_.on() && status.ok()) recorder_.ended(plan.record);
  if (!timeline_.has(trace_time(operation.started_at()))) return;
  const Signature& signature = plan.entries.front()->signature;
  const StepTrace::Costs costs = operation.costs();
  const OperationRecord record{.kind = to_string(signature.kind),
                               .type = to_string(signature.type),
                               .mode = to_string(plan.mode),
                               .error = code_of(status),
                               .sequence = plan.sequence,
                               .process_set = communicator.id(),
                               .tensors = static_cast<std::uint32_t>(plan.entries.size()),
                               .elements = elements_of(plan),
                               .bytes = traced_bytes(plan),
                               .blocking = false,
                               .started = trace_time(operation.started_at()),
                               .ended = trace_now(),
                               .pack_ns = costs.pack,
                               .reduce_ns = costs.reduce,
                               .unpack_ns = costs.unpack};
  text_ = operation.algorithm();
  for (const EntryPtr& entry : plan.entries) {
    // Whole names or none: the trace ring would cut the last one.
    if (text_.size() + 1 + entry->name.size() > TraceRing::kMaxText) break;
    text_.append(1, '\0').append(entry->name);
  }
  timeline_.record(record, text_);
  count(-static_cast<std::int64_t>(record.bytes), -1);
}

void CycleTrace::finished(const Communicator& communicator, const Entry& entry,
                          const Status& status) {
  // The end of an operation is that of its tensors.
  if (!status.ok() && recorder_.on() && status.error().code != ErrorCode::kShutdown) {
    const auto mode =
        is_message(entry) ? SubmissionMode::kPointToPoint : SubmissionMode::kNegotiated;
    recorder_.failed_alone(entry.record, recorded(entry, mode));
  }
  record(communicator, entry, status);
}

void CycleTrace::refused(const Communicator& communicator, const Entry& entry,
                         std::uint64_t sequence, const Error& error) {
  if (recorder_.on()) recorder_.called(communicator.id(), sequence, kRefusedCall);
  record(communicator, entry, error);
}

void CycleTrace::record(const Communicator& communicator, const Entry& entry,
                        const Status& status) {
  if (!timeline_.has(trace_time(entry.submitted_at))) return;
  const auto time = [](Clock::time_point at) { return trace_time(at); };
  timeline_.record(TensorRecord{.kind = to_string(entry.signature.kind),
                                .type = to_string(entry.signature.type),
                                .error = code_of(status),
                                .bytes = entry.bytes(),
                                .process_set = communicator.id(),
                                .submitted = time(entry.submitted_at),
                                .drained = time(entry.drained_at),
                                .agreed = time(entry.agreed_at),
                                .started = time(entry.started_at),
                                .ended = trace_now()},
                   entry.name);
}

void CycleTrace::exchange_begun() {
  if (timeline_.on()) exchange_begun_ = trace_now();
}

void CycleTrace::exchange_ended(const Communicator& communicator, const Exchange::Request& request,
                                const Exchange& exchange) {
  if (recorder_.on()) recorder_.called(communicator.id(), request.sequence, exchange.fingerprint());
  if (!timeline_.has(exchange_begun_)) return;
  // As elements_of().
  const bool is_root = request.root == communicator.rank();
  const auto size = static_cast<std::uint64_t>(communicator.size());
  std::uint64_t elements = request.count;
  if (request.kind == OperationKind::kAllgather ||
      (request.kind == OperationKind::kGather && is_root))
    elements *= size;
  if (request.kind == OperationKind::kScatter && !is_root) elements /= size;
  timeline_.record(OperationRecord{.kind = to_string(request.kind),
                                   .type = to_string(request.type),
                                   .mode = to_string(SubmissionMode::kInOrder),
                                   .sequence = request.sequence,
                                   .process_set = communicator.id(),
                                   .elements = elements,
                                   .bytes = elements * size_of(request.type),
                                   .blocking = true,
                                   .started = exchange_begun_,
                                   .ended = trace_now()},
                   exchange.algorithm());
}

void CycleTrace::joined_set(const Communicator& communicator) {
  if (recorder_.on())
    recorder_.add_set(communicator.id(), communicator.size(), communicator.rank());
}

void CycleTrace::failed(const Failure& failure) {
  const Error& error = failure.error;
  if (recorder_.on()) recorder_.failed(error, failure.culprit);
  if (timeline_.on()) timeline_.record(NoteRecord{trace_now()}, "failed: " + error.message);
}

void CycleTrace::count(std::int64_t bytes, int operations) {
  // Another timeline has begun: it counts what it has seen start.
  if (std::exchange(counted_since_, timeline_.since()) != timeline_.since()) {
    bytes_in_flight_ = 0;
    operations_in_flight_ = 0;
  }
  bytes_in_flight_ += bytes;
  operations_in_flight_ += operations;
  timeline_.record(CounterRecord{trace_now(), static_cast<std::uint64_t>(bytes_in_flight_),
                                 static_cast<std::uint32_t>(operations_in_flight_)});
}

}  // namespace kolo
