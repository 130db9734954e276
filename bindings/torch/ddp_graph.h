// Which leaves a backward from given outputs would reach. Used by the reducer of
// DistributedDataParallel after a forward; pure. Private to bindings/torch.
#pragma once

#include <torch/torch.h>

#include <unordered_set>
#include <vector>

namespace kolo {

using Leaves = std::unordered_set<const void*>;  ///< by Tensor::unsafeGetTensorImpl()

/// Adds the leaves that the graph of `outputs` ends in.
void add_leaves(const std::vector<torch::Tensor>& outputs, Leaves& leaves);

}  // namespace kolo
