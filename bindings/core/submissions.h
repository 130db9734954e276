// Options of the public calls, turned into submissions. Private to bindings/core; any thread.
#pragma once

#include "bindings/core/global.h"

#include <memory>
#include <optional>
#include <string_view>

namespace kolo {

/// Of an operation that has no options but these; its output is still to be set.
Submission submission_of(OperationKind kind, const void* input, const Shape& shape, DataType type,
                         const CollectiveOptions& options);
Submission allreduce_submission(const void* input, void* output, const Shape& shape, DataType type,
                                const AllreduceOptions& options);
Submission allgather_submission(const void* input, const Shape& shape, DataType type,
                                Allocator allocate, const CollectiveOptions& options);
Submission reducescatter_submission(const void* input, const Shape& shape, DataType type,
                                    Allocator allocate, const ReducescatterOptions& options);

/// Waits for an operation of these options' stream, which then does what it is given from now on
/// after it. Throws what the operation failed with.
void finish(Work& work, const std::optional<CudaStream>& stream);

/// An allocator whose exceptions do not reach the progress thread: they become a null pointer.
Allocate guarded(Allocator allocate);

}  // namespace kolo
