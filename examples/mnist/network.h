// The convolutional network of PyTorch's MNIST example.
#pragma once

#include <torch/torch.h>

namespace mnist {

/// [n, 1, 28, 28] → log-probabilities [n, 10]. 3×3 convolutions to 32 and 64 channels, max-pool 2,
/// dropout 0.25, 9216 → 128, dropout 0.5, 128 → 10.
class NetworkImpl : public torch::nn::Cloneable<NetworkImpl> {
 public:
  /// Without dropout, training is a function of the data alone.
  explicit NetworkImpl(bool with_dropout);
  /// Makes the layers; a clone makes its own here, too.
  void reset() override;
  torch::Tensor forward(torch::Tensor images);

 private:
  bool with_dropout_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  torch::nn::Linear fc1_{nullptr};
  torch::nn::Linear fc2_{nullptr};
};
TORCH_MODULE(Network);

}  // namespace mnist
