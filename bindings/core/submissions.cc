#include "bindings/core/submissions.h"

#include <utility>

namespace kolo {

Submission allreduce_submission(const void* input, void* output, const Shape& shape, DataType type,
                                const AllreduceOptions& options) {
  auto submission = submission_of(OperationKind::kAllreduce, input, shape, type, options);
  submission.output = static_cast<std::byte*>(output);
  submission.absent = options.absent;
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
