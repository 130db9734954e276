// Rectified flow (Liu et al., "Flow Straight and Fast: Learning to Generate and Transfer Data with
// Rectified Flow", ICLR 2023): noise moves to an image along a straight line; the network learns
// the velocity; an Euler integration of it makes images of noise. Called by main.
#pragma once

#include "examples/mnist/digits.h"
#include "examples/rectified_flow/network.h"

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace rectified {

/// Digits as the flow has them: [n, 1, 28, 28] float from -1 to 1, and labels. For the data loader,
/// whose workers call it, each on a copy that shares the memory.
class FlowDataset
    : public torch::data::datasets::BatchDataset<FlowDataset, torch::data::Example<>> {
 public:
  explicit FlowDataset(mnist::Digits digits) : digits_(std::move(digits)) {}
  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) override;
  std::optional<std::size_t> size() const override { return digits_.count(); }

 private:
  mnist::Digits digits_;
};

/// The mean squared error of the velocity at x_t = (1 - t) · noise + t · image, which is image -
/// noise all along the way. Noise and t, one an image, come from torch's generator.
torch::Tensor loss(Network& network, const torch::Tensor& images, const torch::Tensor& digits);

/// Images [n, 1, 28, 28], about -1 to 1, of `digits` [n], in `steps` Euler steps. The same `seed`
/// gives the same noise; torch's generator is left alone.
torch::Tensor sample(Network& network, const torch::Tensor& digits, int steps, std::uint64_t seed);

}  // namespace rectified
