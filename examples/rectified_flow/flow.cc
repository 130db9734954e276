#include "examples/rectified_flow/flow.h"

#include <ATen/CPUGeneratorImpl.h>

#include <vector>

namespace rectified {
namespace {

constexpr std::int64_t kSide = 28;

}  // namespace

torch::data::Example<> FlowDataset::get_batch(c10::ArrayRef<std::size_t> indices) {
  const torch::Tensor index =
      torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), torch::kInt64);
  torch::Tensor images = digits_.images.index_select(0, index).to(torch::kFloat32);
  images.div_(127.5F).sub_(1.0F);
  return {images, digits_.labels.index_select(0, index)};
}

torch::Tensor loss(Network& network, const torch::Tensor& images, const torch::Tensor& digits) {
  const torch::Tensor noise = torch::randn_like(images);
  const torch::Tensor times = torch::rand({images.size(0)}, images.options());
  const torch::Tensor velocity = images - noise;
  const torch::Tensor between = noise + times.view({-1, 1, 1, 1}) * velocity;
  return torch::mse_loss(network->forward(between, times, digits), velocity);
}

torch::Tensor sample(Network& network, const torch::Tensor& digits, int steps, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  // Random numbers of the CPU: the noise is the same on every device.
  torch::Tensor images =
      torch::randn({digits.size(0), 1, kSide, kSide}, generator).to(digits.device());
  for (int i = 0; i < steps; ++i) {
    const torch::Tensor times =
        torch::full({digits.size(0)}, static_cast<double>(i) / steps, images.options());
    images += network->forward(images, times, digits) / steps;
  }
  return images;
}

}  // namespace rectified
