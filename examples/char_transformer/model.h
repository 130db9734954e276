// A small GPT on characters. Main thread.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace char_transformer {

struct ModelOptions {
  std::int64_t characters = 0;  ///< number of different characters
  std::int64_t context = 64;    ///< characters that the model sees
  std::int64_t width = 128;     ///< a multiple of heads
  std::int64_t heads = 4;
  std::int64_t layers = 2;
};

/// Causal self-attention, then two linear layers; each adds its result to its input.
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const ModelOptions& options);
  /// Input and result are [batch, length, width].
  torch::Tensor forward(torch::Tensor x);

 private:
  std::int64_t heads_;
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  torch::nn::Linear attention_{nullptr}, project_{nullptr}, widen_{nullptr}, narrow_{nullptr};
};
TORCH_MODULE(Block);

class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const ModelOptions& options);
  /// Characters [batch, length ≤ context] int64 → logits of the next character [batch, length,
  /// characters].
  torch::Tensor forward(const torch::Tensor& text);
  std::int64_t context() const { return context_; }

 private:
  std::int64_t context_;
  torch::nn::Embedding character_{nullptr}, position_{nullptr};
  torch::nn::Sequential blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(Gpt);

}  // namespace char_transformer
