// A sparse (COO) tensor as 64-bit words, which one allgather carries, and the sum of all ranks'
// tensors. For sparse_allreduce, gradients and c10d. Private to bindings/torch and bindings/c10d;
// pure.
#pragma once

#include <kolo/kolo.h>
#include <torch/torch.h>

#include <string>

namespace kolo {

/// This rank's part, on the tensor's device: the tensor with one value for each index, multiplied
/// by `scale`. An undefined tensor is an empty part, which contributes nothing.
/// Precondition: a defined tensor has the layout torch::kSparse.
torch::Tensor sparse_part_of(const torch::Tensor& tensor, const torch::Device& device,
                             const ProcessSet& set, double scale = 1.0);

/// The sum of all parts, which follow each other by rank: coalesced, and in a fixed order of
/// addition. Undefined if all parts are empty. Throws kMismatch with both ranks and values if they
/// differ in shape, type or the number of sparse dimensions; `what` begins the message.
torch::Tensor sum_of_sparse_parts(const torch::Tensor& parts, const std::string& what,
                                  const ProcessSet& set);

}  // namespace kolo
