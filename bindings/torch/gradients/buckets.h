// Groups gradients into buckets and holds a bucket's memory. Used by the reducer of
// DistributedDataParallel and, for the grouping, by ShardedParameters; one thread at a time.
// Private to bindings/torch.
#pragma once

#include "bindings/torch/tensors/agreed_layout.h"

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo {

/// Groups the parameters, given by index and in `order`. Each group has one type and one device and
/// at most `cap_mb` MiB; the first group of each such kind has at most `first_cap_mb`. A larger
/// parameter forms a group alone.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<AgreedLayout>& parameters,
                                                     const std::vector<std::size_t>& order,
                                                     double first_cap_mb, double cap_mb);

/// Flat memory for some tensors of one type on one device, each in its agreed order. Initially
/// zeros; the gaps stay zero.
class BucketMemory {
 public:
  BucketMemory() = default;
  explicit BucketMemory(const std::vector<AgreedLayout>& parameters);

  bool defined() const { return flat_.defined(); }
  const torch::Tensor& flat() const { return flat_; }
  const torch::Tensor& view(std::size_t k) const { return views_[k]; }
  const std::vector<torch::Tensor>& views() const { return views_; }
  /// The tensor that an element of flat() belongs to.
  std::size_t tensor_at(std::uint64_t element) const;
  /// A new tensor on the memory of tensor k. It shares the storage but is not an autograd view,
  /// because optimizers that detach a gradient in place refuse views.
  torch::Tensor alias(std::size_t k) const;
  /// Whether `tensor` lies exactly on the memory of tensor k.
  bool holds(std::size_t k, const torch::Tensor& tensor) const;
  /// Copies `tensor` to the memory of tensor k, whatever its strides; it may lie in this memory
  /// itself.
  void copy_in(std::size_t k, const torch::Tensor& tensor);

 private:
  torch::Tensor flat_;
  std::vector<torch::Tensor> views_;
};

}  // namespace kolo
