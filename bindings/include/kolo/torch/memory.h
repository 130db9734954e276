// Tensors in memory that the ranks of a host share.
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

namespace kolo {

/// A contiguous tensor of zeros with the type and device of `options`. On the CPU in memory of
/// kolo::allocate(): all-reduces in place on it copy nothing between ranks of one host. On this
/// rank's CUDA device, which torch::kCUDA without an index means here, likewise, in memory of
/// kolo::allocate_on_device(); where there is none, or on another CUDA device, an ordinary tensor.
/// Throws kInvalidArgument for a negative size, kUnsupported for another kind of device and for
/// torch::kCUDA on a rank without one, kOutOfMemory; kShutdown before init() on the CPU and for
/// torch::kCUDA without an index. Any thread.
KOLO_API torch::Tensor shared_zeros(torch::IntArrayRef sizes,
                                    const torch::TensorOptions& options = {});

}  // namespace kolo
