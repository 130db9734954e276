// AgreedLayout: what the ranks have agreed on of a tensor when a wrapper was made, kept beside the
// tensor, whose memory a program may replace later (to(), torch::load(), set_data()).
//
// - Ranks exchange elements in the agreed order of memory. A tensor whose strides have changed, on
//   all ranks or on one, is copied to that order and back, so elements always meet by their index.
// - Other sizes, another type or device, and elements that share memory do not fit; whoever keeps
//   the layout refuses them on all ranks with change_in().
//
// Used by DistributedDataParallel and ShardedOptimizer. DistributedOptimizer needs none: its ranks
// agree on the shape and type of each gradient whenever it travels. Private to bindings/torch; one
// thread at a time.
#pragma once

#include <kolo/torch/broadcast_parameters.h>
#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

/// Whether no two elements share memory, and there are no gaps between them.
bool is_dense(const torch::Tensor& tensor);

/// Of what change_in() says, for who gets it from another rank.
inline constexpr const char* kWhenMade = "when this was made";

class AgreedLayout {
 public:
  /// In the order of `tensor`'s memory; contiguous, if that is not dense.
  explicit AgreedLayout(const torch::Tensor& tensor);

  std::int64_t numel() const { return numel_; }
  torch::IntArrayRef sizes() const { return sizes_; }
  /// Dense.
  torch::IntArrayRef strides() const { return strides_; }
  torch::TensorOptions options() const { return torch::TensorOptions(type_).device(device_); }
  torch::ScalarType type() const { return type_; }
  torch::Device device() const { return device_; }

  /// Whether `tensor` may stand where the agreed one stood. Costs a few comparisons.
  bool fits(const torch::Tensor& tensor) const;
  /// "is Float [4] on cpu, but was Float [2] on cpu when this was made"; empty if it fits.
  std::string change_in(const torch::Tensor& tensor) const;
  /// From now on type and device are `tensor`'s.
  void convert_to(const torch::Tensor& tensor);

  /// Whether the elements of `tensor`, which fits, lie in memory in the agreed order.
  bool orders(const torch::Tensor& tensor) const;
  /// The elements of `tensor`, which has these sizes, in the agreed order: its own memory where
  /// that has them so, else a copy.
  torch::Tensor flat_of(const torch::Tensor& tensor) const;
  /// A tensor of these sizes on numel() elements of `flat` from `offset` on.
  torch::Tensor on(const torch::Tensor& flat, std::int64_t offset = 0) const;
  torch::Tensor zeros(const torch::TensorOptions& options) const;

 private:
  std::int64_t numel_;
  c10::DimVector sizes_;
  c10::DimVector strides_;
  torch::ScalarType type_;
  torch::Device device_;
};

/// A tensor and what was agreed on of it.
struct AgreedTensor {
  std::string name;
  torch::Tensor tensor;
  AgreedLayout layout = AgreedLayout(tensor);
};

/// With the layouts that they have now.
std::vector<AgreedTensor> agreed_on(const NamedTensors& tensors);

}  // namespace kolo
