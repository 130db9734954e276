#include "examples/rectified_flow/network.h"

#include <cmath>

namespace rectified {
namespace {

constexpr std::int64_t kGroups = 8;

torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1));
}

torch::nn::GroupNorm normalisation(std::int64_t channels) {
  return torch::nn::GroupNorm(torch::nn::GroupNormOptions(kGroups, channels));
}

/// Sets a layer to zero, so that a deep network starts as a shallow one.
void silence(torch::nn::Conv2d& layer) {
  torch::nn::init::zeros_(layer->weight);
  torch::nn::init::zeros_(layer->bias);
}

torch::Tensor twice(const torch::Tensor& images) {
  return torch::upsample_nearest2d(images, {2 * images.size(2), 2 * images.size(3)});
}

}  // namespace

BlockImpl::BlockImpl(std::int64_t in, std::int64_t out, std::int64_t embedding)
    : norm1_(register_module("norm1", normalisation(in))),
      conv1_(register_module("conv1", convolution(in, out))),
      modulation_(register_module("modulation", torch::nn::Linear(embedding, out))),
      norm2_(register_module("norm2", normalisation(out))),
      conv2_(register_module("conv2", convolution(out, out))) {
  silence(conv2_);
  if (in != out)
    shortcut_ =
        register_module("shortcut", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1)));
}

torch::Tensor BlockImpl::forward(const torch::Tensor& input, const torch::Tensor& embedding) {
  torch::Tensor hidden = conv1_->forward(torch::silu(norm1_->forward(input)));
  hidden = hidden + modulation_->forward(embedding).unsqueeze(-1).unsqueeze(-1);
  hidden = conv2_->forward(torch::silu(norm2_->forward(hidden)));
  return hidden + (shortcut_.is_empty() ? input : shortcut_->forward(input));
}

NetworkImpl::NetworkImpl(std::int64_t width, std::int64_t depth)
    : frequencies_(2 * width),
      digit_(register_module("digit", torch::nn::Embedding(kDigits, 4 * width))),
      time_(register_module(
          "time", torch::nn::Sequential(torch::nn::Linear(4 * width, 4 * width), torch::nn::SiLU(),
                                        torch::nn::Linear(4 * width, 4 * width)))),
      stem_(register_module("stem", convolution(1, width))),
      down1_(register_module("down1", convolution(width, 2 * width, 2))),
      down2_(register_module("down2", convolution(2 * width, 4 * width, 2))),
      left_(register_module("left", Block(2 * width, 2 * width, 4 * width))),
      middle_(register_module("middle", torch::nn::ModuleList())),
      right_(register_module("right", Block(4 * width, 2 * width, 4 * width))),
      up1_(register_module("up1", convolution(4 * width, 2 * width))),
      up2_(register_module("up2", convolution(2 * width, width))),
      norm_(register_module("norm", normalisation(2 * width))),
      head_(register_module("head", convolution(2 * width, 1))) {
  for (std::int64_t i = 0; i < depth; ++i)
    middle_->push_back(Block(4 * width, 4 * width, 4 * width));
  silence(head_);
}

torch::Tensor NetworkImpl::embed(const torch::Tensor& times, const torch::Tensor& digits) {
  // Waves of lengths from 1 to 1/1000 tell near and far times apart (Vaswani et al., 2017).
  const torch::Tensor waves = torch::exp(torch::arange(frequencies_, times.options()) *
                                         (std::log(1000.0) / static_cast<double>(frequencies_)));
  const torch::Tensor angles = times.unsqueeze(1) * waves.unsqueeze(0);
  const torch::Tensor time = torch::cat({torch::sin(angles), torch::cos(angles)}, 1);
  return torch::silu(time_->forward(time) + digit_->forward(digits));
}

torch::Tensor NetworkImpl::forward(const torch::Tensor& images, const torch::Tensor& times,
                                   const torch::Tensor& digits) {
  const torch::Tensor embedding = embed(times, digits);
  const torch::Tensor full = stem_->forward(images);
  const torch::Tensor half = left_->forward(down1_->forward(full), embedding);
  torch::Tensor hidden = down2_->forward(half);
  for (const auto& block : *middle_) hidden = block->as<Block>()->forward(hidden, embedding);
  hidden = up1_->forward(twice(hidden));
  hidden = right_->forward(torch::cat({hidden, half}, 1), embedding);
  hidden = up2_->forward(twice(hidden));
  return head_->forward(torch::silu(norm_->forward(torch::cat({hidden, full}, 1))));
}

std::int64_t NetworkImpl::parameter_count() const {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : parameters()) count += parameter.numel();
  return count;
}

}  // namespace rectified
