#include "examples/synthetic_benchmark/resnet.h"

#include <array>

namespace synthetic {
namespace {

constexpr std::int64_t kClasses = 1000;
constexpr std::int64_t kStemWidth = 64;

void add_convolution(torch::nn::Sequential& layers, std::int64_t in, std::int64_t out,
                     std::int64_t kernel, std::int64_t stride) {
  torch::nn::Conv2d convolution(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
  layers->push_back(convolution);
  layers->push_back(torch::nn::BatchNorm2d(out));
}

torch::nn::ReLU relu_in_place() { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); }

}  // namespace

BlockImpl::BlockImpl(std::int64_t in, std::int64_t width, std::int64_t stride, bool bottleneck) {
  const std::int64_t out = bottleneck ? 4 * width : width;
  if (bottleneck) {
    add_convolution(residual_, in, width, 1, 1);
    residual_->push_back(relu_in_place());
    add_convolution(residual_, width, width, 3, stride);
    residual_->push_back(relu_in_place());
    add_convolution(residual_, width, out, 1, 1);
  } else {
    add_convolution(residual_, in, width, 3, stride);
    residual_->push_back(relu_in_place());
    add_convolution(residual_, width, out, 3, 1);
  }
  if (stride != 1 || in != out) add_convolution(shortcut_, in, out, 1, stride);
  register_module("residual", residual_);
  register_module("shortcut", shortcut_);
}

torch::Tensor BlockImpl::forward(const torch::Tensor& input) {
  const torch::Tensor shortcut = shortcut_->is_empty() ? input : shortcut_->forward(input);
  return torch::relu(residual_->forward(input) + shortcut);
}

ResNetImpl::ResNetImpl(int layers) {
  TORCH_CHECK(layers == 18 || layers == 50, "a ResNet has 18 or 50 layers here, not ", layers);
  const bool bottleneck = layers == 50;
  const std::array<int, 4> blocks =
      bottleneck ? std::array<int, 4>{3, 4, 6, 3} : std::array<int, 4>{2, 2, 2, 2};
  add_convolution(features_, 3, kStemWidth, 7, 2);
  features_->push_back(relu_in_place());
  features_->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t channels = kStemWidth;
  std::int64_t width = kStemWidth;
  for (const int count : blocks) {
    for (int i = 0; i < count; ++i) {
      // The first stage keeps the extents that the pooling left.
      const std::int64_t stride = i == 0 && width != kStemWidth ? 2 : 1;
      features_->push_back(Block(channels, width, stride, bottleneck));
      channels = bottleneck ? 4 * width : width;
    }
    width *= 2;
  }
  features_->push_back(torch::nn::AdaptiveAvgPool2d(1));
  features_->push_back(torch::nn::Flatten());
  register_module("features", features_);
  fc_ = register_module("fc", torch::nn::Linear(channels, kClasses));
}

torch::Tensor ResNetImpl::forward(const torch::Tensor& images) {
  return fc_->forward(features_->forward(images));
}

std::int64_t parameter_count(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace synthetic
