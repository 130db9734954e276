// Tensors in memory that the ranks of a host share.
//
//   torch::Tensor buffer = kolo::shared_zeros({1 << 20}, torch::kFloat32);
//   kolo::allreduce_(buffer);  // copies nothing between ranks of one host
#pragma once

#include <kolo/export.h>
#include <torch/types.h>

namespace kolo {

/// Returns a contiguous tensor of zeros with the type and device of `options`.
/// - On the CPU it is in memory of kolo::allocate(): in-place all-reduces on it copy nothing
///   between ranks of one host.
/// - On this rank's CUDA device it is in memory of kolo::allocate_on_device(), where there is any.
///   torch::kCUDA without an index means this device.
/// - Otherwise, also on another CUDA device, it is an ordinary tensor.
/// - Throws kInvalidArgument for a negative size, kOutOfMemory, and kUnsupported for other kinds of
///   devices and for torch::kCUDA on a rank without one. Throws kShutdown before init(), on the CPU
///   and for torch::kCUDA without an index. Any thread.
KOLO_API torch::Tensor shared_zeros(torch::IntArrayRef sizes,
                                    const torch::TensorOptions& options = {});

}  // namespace kolo
