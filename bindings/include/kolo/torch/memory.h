// Tensors in memory that the ranks of a host share.
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

namespace kolo {

/// A contiguous CPU tensor of zeros in memory of kolo::allocate(), with the type of `options`:
/// all-reduces in place on it copy nothing between ranks of one host. An ordinary tensor otherwise.
/// Throws kInvalidArgument for a negative size, kUnsupported for another device, kOutOfMemory. Any
/// thread.
KOLO_API torch::Tensor shared_zeros(torch::IntArrayRef sizes,
                                    const torch::TensorOptions& options = {});

}  // namespace kolo
