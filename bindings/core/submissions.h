// Options of the public calls, turned into submissions. Private to bindings/core; any thread.
#pragma once

#include "bindings/core/global.h"

#include <memory>
#include <optional>
#include <string_view>

namespace kolo {

/// For an operation that has no further options. The caller sets the output.
Submission submission_of(OperationKind kind, const void* input, const Shape& shape, DataType type,
                         const CollectiveOptions& options);
Submission allreduce_submission(const void* input, void* output, const Shape& shape, DataType type,
                                const AllreduceOptions& options);
Submission allgather_submission(const void* input, const Shape& shape, DataType type,
                                Allocator allocate, const CollectiveOptions& options);
Submission reducescatter_submission(const void* input, const Shape& shape, DataType type,
                                    Allocator allocate, const ReducescatterOptions& options);

/// Waits for an operation and makes `stream` run later work after it. Throws the operation's error.
void finish(Work& work, const std::optional<CudaStream>& stream);

/// An allocator that returns null instead of throwing, so no exception reaches the progress thread.
Allocate guarded(Allocator allocate);

}  // namespace kolo
