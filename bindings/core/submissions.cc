#include "bindings/core/submissions.h"

#include "bindings/core/input_parts.h"
#include "bindings/core/step_scope.h"

#include <utility>

namespace kolo {

Submission submission_of(OperationKind kind, const void* input, const Shape& shape, DataType type,
                         const CollectiveOptions& options) {
  Submission submission;
  submission.name = options.name;
  submission.signature.kind = kind;
  submission.signature.type = type;
  submission.signature.shape = shape;
  submission.input = static_cast<const std::byte*>(input);
  submission.keep_alive = options.keep_alive;
  submission.process_set = number_of(options.process_set);
  submission.stream = options.stream;
  submission.step = StepScope::current();
  return submission;
}

Submission allreduce_submission(const void* input, void* output, const Shape& shape, DataType type,
                                const AllreduceOptions& options) {
  Submission submission;
  submission.name = options.name;
  submission.signature = {OperationKind::kAllreduce, type, options.op, 0, options.prescale,
                          options.postscale,         shape};
  submission.input = static_cast<const std::byte*>(input);
  submission.output = static_cast<std::byte*>(output);
  submission.absent = options.absent;
  submission.part_at = InputParts::current();
  submission.keep_alive = options.keep_alive;
  submission.process_set = number_of(options.process_set);
  submission.stream = options.stream;
  submission.step = StepScope::current();
  return submission;
}

Submission allgather_submission(const void* input, const Shape& shape, DataType type,
                                Allocator allocate, const CollectiveOptions& options) {
  auto submission = submission_of(OperationKind::kAllgather, input, shape, type, options);
  submission.allocate = guarded(std::move(allocate));
  return submission;
}

Submission reducescatter_submission(const void* input, const Shape& shape, DataType type,
                                    Allocator allocate, const ReducescatterOptions& options) {
  auto submission =
      submission_of(OperationKind::kReduceScatter, input, shape, type,
                    {options.name, options.keep_alive, options.process_set, options.stream});
  submission.signature.op = options.op;
  submission.signature.prescale = options.prescale;
  submission.signature.postscale = options.postscale;
  submission.part_at = InputParts::current();
  submission.allocate = guarded(std::move(allocate));
  return submission;
}

void finish(Work& work, const std::optional<CudaStream>& stream) {
  synchronize(work);
  if (stream) throw_if_failed(work.order(*stream));
}

Allocate guarded(Allocator allocate) {
  return [allocate = std::move(allocate)](const Shape& shape) -> std::byte* {
    try {
      return static_cast<std::byte*>(allocate(shape));
    } catch (...) {
      return nullptr;
    }
  };
}

}  // namespace kolo
