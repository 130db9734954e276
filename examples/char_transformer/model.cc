#include "examples/char_transformer/model.h"

namespace char_transformer {

namespace nn = torch::nn;

BlockImpl::BlockImpl(const ModelOptions& options) : heads_(options.heads) {
  const std::int64_t width = options.width;
  norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
  norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
  attention_ = register_module("attention", nn::Linear(width, 3 * width));
  project_ = register_module("project", nn::Linear(width, width));
  widen_ = register_module("widen", nn::Linear(width, 4 * width));
  narrow_ = register_module("narrow", nn::Linear(4 * width, width));
}

torch::Tensor BlockImpl::forward(torch::Tensor x) {
  const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
  // [3, batch, heads, length, width / heads]
  const auto parts = attention_->forward(norm1_->forward(x))
                         .reshape({batch, length, 3, heads_, width / heads_})
                         .permute({2, 0, 3, 1, 4});
  const auto seen = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0,
                                                     /*is_causal=*/true);
  x = x + project_->forward(seen.transpose(1, 2).reshape({batch, length, width}));
  return x + narrow_->forward(torch::gelu(widen_->forward(norm2_->forward(x))));
}

GptImpl::GptImpl(const ModelOptions& options) : context_(options.context) {
  character_ = register_module("character", nn::Embedding(options.characters, options.width));
  position_ = register_module("position", nn::Embedding(options.context, options.width));
  for (std::int64_t i = 0; i < options.layers; ++i) blocks_->push_back(Block(options));
  register_module("blocks", blocks_);
  norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({options.width})));
  head_ = register_module(
      "head", nn::Linear(nn::LinearOptions(options.width, options.characters).bias(false)));
  const torch::NoGradGuard no_grad;
  character_->weight.normal_(0, 0.02);
  position_->weight.normal_(0, 0.02);
}

torch::Tensor GptImpl::forward(const torch::Tensor& text) {
  const auto places = torch::arange(text.size(1), text.options());
  return head_->forward(
      norm_->forward(blocks_->forward(character_->forward(text) + position_->forward(places))));
}

}  // namespace char_transformer
