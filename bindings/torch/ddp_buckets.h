// The grouping of gradients in buckets, and a bucket's memory. Used by the reducer of
// DistributedDataParallel; one thread at a time. Private to bindings/torch.
#pragma once

#include "bindings/torch/agreed_layout.h"

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo {

/// Groups the parameters, given by index and in `order`, so that each group is of one type on one
/// device and of at most `cap` bytes, the first of each such kind of at most `first_cap`; a larger
/// one is alone.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<AgreedLayout>& parameters,
                                                     const std::vector<std::size_t>& order,
                                                     std::int64_t first_cap, std::int64_t cap);

/// Flat memory with a place for each of some tensors of one type on one device, each in its agreed
/// order. Zeros at first; the gaps stay so.
class BucketMemory {
 public:
  BucketMemory() = default;
  explicit BucketMemory(const std::vector<AgreedLayout>& parameters);

  bool defined() const { return flat_.defined(); }
  const torch::Tensor& flat() const { return flat_; }
  const torch::Tensor& place(std::size_t k) const { return places_[k]; }
  const std::vector<torch::Tensor>& places() const { return places_; }
  /// Another tensor on the same memory. It shares the storage without being a view of autograd's,
  /// as optimizers that detach a gradient in place do not take views.
  torch::Tensor alias(std::size_t k) const;
  /// Whether `tensor` is on that memory, element by element.
  bool holds(std::size_t k, const torch::Tensor& tensor) const;
  /// Copies `tensor` there, whatever its strides are and even if it is in this memory itself.
  void copy_in(std::size_t k, const torch::Tensor& tensor);

 private:
  torch::Tensor flat_;
  std::vector<torch::Tensor> places_;
};

}  // namespace kolo
