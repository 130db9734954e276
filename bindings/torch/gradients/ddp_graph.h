// Finds the leaves that a backward from given outputs would reach. Used by the reducer of
// DistributedDataParallel after a forward; pure. Private to bindings/torch.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

namespace kolo {

using Leaves = std::unordered_set<const void*>;  ///< by Tensor::unsafeGetTensorImpl()

// LibTorch's versions differ in the pointer type that owns a graph's node.
template <class T>
std::weak_ptr<T> weak_of(const std::shared_ptr<T>& node) {
  return node;
}
template <class T, class Null>
c10::weak_intrusive_ptr<T, Null> weak_of(const c10::intrusive_ptr<T, Null>& node) {
  return c10::weak_intrusive_ptr<T, Null>(node);
}
/// Tells whether a graph still exists.
using WeakNode = decltype(weak_of(std::declval<const torch::Tensor&>().grad_fn()));

/// Adds the leaves in which the graph of `outputs` ends.
void add_leaves(const std::vector<torch::Tensor>& outputs, Leaves& leaves);

}  // namespace kolo
