// Rectified flow (Liu et al., "Flow Straight and Fast: Learning to Generate and Transfer Data with
// Rectified Flow", ICLR 2023): noise moves to an image along a straight line, and the network
// learns the velocity. Euler integration of the velocity turns noise into images. Called by main.
#pragma once

#include "examples/mnist/digits.h"
#include "examples/rectified_flow/network.h"

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace rectified {

/// Digits as the flow takes them: [n, 1, 28, 28] float from -1 to 1, and labels. The data loader's
/// workers call it, each on a copy that shares the memory.
class FlowDataset
    : public torch::data::datasets::BatchDataset<FlowDataset, torch::data::Example<>> {
 public:
  explicit FlowDataset(mnist::Digits digits) : digits_(std::move(digits)) {}
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) override;
  std::optional<std::size_t> size() const override { return digits_.count(); }

 private:
  mnist::Digits digits_;
};

/// The mean squared error of the network's velocity at x_t = (1 - t) · noise + t · image. The true
/// velocity is image - noise for every t. Noise and t, one per image, come from torch's generator.
torch::Tensor loss(Network& network, const torch::Tensor& images, const torch::Tensor& digits);

/// Draws images [n, 1, 28, 28], about -1 to 1, of `digits` [n], in `steps` Euler steps. The same
/// `seed` gives the same noise; torch's generator is left alone.
torch::Tensor sample(Network& network, const torch::Tensor& digits, int steps, std::uint64_t seed);

}  // namespace rectified
