// AgreedLayout: the type, device, sizes and memory order of a tensor that the ranks agreed on when
// a wrapper was made. It is kept beside the tensor, whose memory a program may replace later (to(),
// torch::load(), set_data()).
//
// - Ranks exchange elements in the agreed memory order. A tensor whose strides have changed, on one
//   rank or on all, is copied to that order and back, so elements always meet by their index.
// - A tensor of other sizes, type or device, or with elements that share memory, does not fit. The
//   owner of the layout refuses it on all ranks with the text of change_in().
//
// Used by DistributedDataParallel and ShardedOptimizer. DistributedOptimizer needs none: its ranks
// agree on each gradient's shape and type in every exchange. Private to bindings/torch; one thread
// at a time.
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
/// With the strides that autograd gives a gradient: the parameter's, or contiguous if the parameter
/// is not dense.
torch::Tensor zero_gradient_of(const torch::Tensor& parameter);

/// Part of change_in()'s text. A rank that receives the text from another rank searches for it.
inline constexpr const char* kWhenMade = "when this was made";

class AgreedLayout {
 public:
  /// Takes the memory order of `tensor`, or a contiguous order if `tensor` is not dense.
  explicit AgreedLayout(const torch::Tensor& tensor);

  std::int64_t numel() const { return numel_; }
  torch::IntArrayRef sizes() const { return sizes_; }
  /// Strides of a dense tensor.
  torch::IntArrayRef strides() const { return strides_; }
  torch::TensorOptions options() const { return torch::TensorOptions(type_).device(device_); }
  torch::ScalarType type() const { return type_; }
  torch::Device device() const { return device_; }

  /// Whether `tensor` may replace the agreed one. Costs a few comparisons.
  bool fits(const torch::Tensor& tensor) const;
  /// "is Float [4] on cpu, but was Float [2] on cpu when this was made"; empty if it fits.
  std::string change_in(const torch::Tensor& tensor) const;
  /// Replaces the agreed type and device by those of `tensor`.
  void convert_to(const torch::Tensor& tensor);

  /// Whether the elements of `tensor`, which fits, lie in memory in the agreed order.
  bool orders(const torch::Tensor& tensor) const;
  /// The elements of `tensor`, which has these sizes, in the agreed order: its own memory if that
  /// is in this order, else a copy.
  torch::Tensor flat_of(const torch::Tensor& tensor) const;
  /// A tensor of the agreed sizes on numel() elements of `flat`, starting at `offset`.
  torch::Tensor on(const torch::Tensor& flat, std::int64_t offset = 0) const;
  torch::Tensor zeros(const torch::TensorOptions& options) const;

 private:
  std::int64_t numel_;
  c10::DimVector sizes_;
  c10::DimVector strides_;
  torch::ScalarType type_;
  torch::Device device_;
};

/// A tensor and the layout agreed on for it.
struct AgreedTensor {
  std::string name;
  torch::Tensor tensor;
  AgreedLayout layout = AgreedLayout(tensor);
};

/// Takes the layouts that the tensors have now.
std::vector<AgreedTensor> agreed_on(const NamedTensors& tensors);

}  // namespace kolo
