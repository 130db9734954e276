// ResNets with 18 and 50 layers (He et al., "Deep Residual Learning for Image Recognition", CVPR
// 2016). As in torchvision, a bottleneck has its stride in the 3×3 convolution. The benchmark
// reduces gradients of these shapes. Called by main and by tests.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace synthetic {

/// relu(residual(x) + shortcut(x)). Channels: `in` → 4 · `width` with a bottleneck (1×1, 3×3, 1×1),
/// → `width` without (3×3, 3×3). The shortcut is a 1×1 convolution where the shape changes.
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(std::int64_t in, std::int64_t width, std::int64_t stride, bool bottleneck);
  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::nn::Sequential residual_;
  torch::nn::Sequential shortcut_;
};
TORCH_MODULE(Block);

/// [n, 3, h, w] → scores of 1000 classes [n, 1000]; h and w are 32 or more.
class ResNetImpl : public torch::nn::Module {
 public:
  /// `layers` is 18 (11,689,512 parameters) or 50 (25,557,032).
  explicit ResNetImpl(int layers);
  torch::Tensor forward(const torch::Tensor& images);

 private:
  torch::nn::Sequential features_;
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

/// Number of elements of all parameters of `module`.
std::int64_t parameter_count(const torch::nn::Module& module);

}  // namespace synthetic
