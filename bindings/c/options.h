// Converts kolo_options into the options of the C++ calls, and provides an allocator for outputs.
// Private to bindings/c.
#pragma once

#include "bindings/c/work.h"

#include <kolo/kolo.h>
#include <kolo/kolo_c.h>

#include <memory>
#include <optional>

namespace kolo {

// `given` may be null: all defaults. The operation keeps `output` alive.

std::optional<CudaStream> stream_of(const kolo_options* given);
AllreduceOptions allreduce_options(const kolo_options* given, ReduceOp op);
CollectiveOptions collective_options(const kolo_options* given,
                                     std::shared_ptr<WorkOutput> output = nullptr);
ReducescatterOptions reducescatter_options(const kolo_options* given, ReduceOp op,
                                           std::shared_ptr<WorkOutput> output);
MessageOptions message_options(const kolo_options* given, std::uint32_t tag);

/// Where the output goes when the ranks agree on its size.
struct OutputMemory {
  Allocator allocate;
  std::shared_ptr<WorkOutput> own;  ///< null: the caller allocates
};

/// Throws kInvalidArgument, naming `call`, if the caller would have no way to find the output.
OutputMemory output_memory(const char* call, const kolo_options* given, DataType type,
                           kolo_work** work);

}  // namespace kolo
