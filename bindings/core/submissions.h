// Options of the public calls, turned into submissions. Private to bindings/core; any thread.
#pragma once

#include "bindings/core/global.h"
#include "bindings/core/input_parts.h"
#include "bindings/core/step_scope.h"

#include <memory>
#include <optional>
#include <utility>

namespace kolo {

/// The caller sets the output, and what the operation's options have besides.
template <class Options = CollectiveOptions>
Submission submission_of(OperationKind kind, const void* input, const Shape& shape, DataType type,
                         const Options& options) {
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
  if constexpr (requires { options.op; }) {  // a reduction
    submission.signature.op = options.op;
    submission.signature.prescale = options.prescale;
    submission.signature.postscale = options.postscale;
    submission.part_at = InputParts::current();
  }
  return submission;
}

Submission allreduce_submission(const void* input, void* output, const Shape& shape, DataType type,
                                const AllreduceOptions& options);

/// An allocator that returns null instead of throwing, so no exception reaches the progress thread.
Allocate guarded(Allocator allocate);

/// For an output whose size the ranks agree on.
template <class Options>
Submission row_submission(OperationKind kind, const void* input, const Shape& shape, DataType type,
                          Allocator allocate, const Options& options) {
  auto submission = submission_of(kind, input, shape, type, options);
  submission.allocate = guarded(std::move(allocate));
  return submission;
}

/// Waits for an operation and makes `stream` run later work after it. Throws the operation's error.
void finish(Work& work, const std::optional<CudaStream>& stream);

}  // namespace kolo
