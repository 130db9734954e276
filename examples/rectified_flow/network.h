// The network of the rectified_flow example predicts the velocity of each pixel. It is a small
// U-Net (Ronneberger et al., 2015) of residual blocks that get the time and the digit. Called by
// main and flow.cc.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace rectified {

inline constexpr std::int64_t kDigits = 10;  ///< classes of images

/// x + convolution(…(x)…); the embedding [n, e] is added between the two convolutions.
class BlockImpl : public torch::nn::Module {
 public:
  /// `in` and `out` are multiples of 8, the groups of the normalisations.
  BlockImpl(std::int64_t in, std::int64_t out, std::int64_t embedding);
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& embedding);

 private:
  torch::nn::GroupNorm norm1_;
  torch::nn::Conv2d conv1_;
  torch::nn::Linear modulation_;
  torch::nn::GroupNorm norm2_;
  torch::nn::Conv2d conv2_;
  torch::nn::Conv2d shortcut_{nullptr};
};
TORCH_MODULE(Block);

/// Images [n, 1, 28, 28], times [n] from 0 to 1, digits [n] int64 → velocities [n, 1, 28, 28].
/// `width` channels at 28×28, twice as many at 14×14, four times at 7×7, where `depth` blocks are.
class NetworkImpl : public torch::nn::Module {
 public:
  /// `width` is a multiple of 8. Parameters: 265,009 at (16, 2), 147 million at (256, 6).
  NetworkImpl(std::int64_t width, std::int64_t depth);
  torch::Tensor forward(const torch::Tensor& images, const torch::Tensor& times,
                        const torch::Tensor& digits);
  std::int64_t parameter_count() const;

 private:
  torch::Tensor embed(const torch::Tensor& times, const torch::Tensor& digits);

  std::int64_t frequencies_;
  torch::nn::Embedding digit_;
  torch::nn::Sequential time_;
  torch::nn::Conv2d stem_, down1_, down2_;
  Block left_;
  torch::nn::ModuleList middle_;
  Block right_;
  torch::nn::Conv2d up1_, up2_;
  torch::nn::GroupNorm norm_;
  torch::nn::Conv2d head_;
};
TORCH_MODULE(Network);

}  // namespace rectified
