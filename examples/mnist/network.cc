#include "examples/mnist/network.h"

namespace mnist {

NetworkImpl::NetworkImpl(bool with_dropout) : with_dropout_(with_dropout) { NetworkImpl::reset(); }

void NetworkImpl::reset() {
  conv1_ = register_module("conv1", torch::nn::Conv2d(1, 32, 3));
  conv2_ = register_module("conv2", torch::nn::Conv2d(32, 64, 3));
  fc1_ = register_module("fc1", torch::nn::Linear(9216, 128));
  fc2_ = register_module("fc2", torch::nn::Linear(128, 10));
}

torch::Tensor NetworkImpl::forward(torch::Tensor images) {
  const bool drop = with_dropout_ && is_training();
  torch::Tensor x = torch::relu(conv1_->forward(images));
  x = torch::relu(conv2_->forward(x));
  x = torch::dropout(torch::max_pool2d(x, 2), 0.25, drop);
  x = torch::relu(fc1_->forward(x.flatten(1)));
  x = torch::dropout(x, 0.5, drop);
  return torch::log_softmax(fc2_->forward(x), 1);
}

}  // namespace mnist
