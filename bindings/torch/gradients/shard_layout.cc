#include "bindings/torch/gradients/shard_layout.h"

#include "bindings/torch/tensors/tensor_memory.h"

#include <algorithm>

namespace kolo {

std::vector<ShardPiece> pieces_of(const ShardBucket& bucket,
                                  const std::vector<ShardedParameter>& parameters, int rank,
                                  int size) {
  const std::int64_t each = bucket.size / size;
  const std::int64_t more = bucket.size % size;
  const std::int64_t first = rank * each + std::min<std::int64_t>(rank, more);
  const std::int64_t last = first + each + (rank < more ? 1 : 0);
  std::vector<ShardPiece> pieces;
  for (const std::size_t index : bucket.parameters) {
    const ShardedParameter& parameter = parameters[index];
    const std::int64_t begin = std::max(first, parameter.offset);
    const std::int64_t end = std::min(last, parameter.offset + parameter.layout.numel());
    if (begin < end)
      pieces.push_back({index, begin - parameter.offset, end - begin, begin - first});
  }
  return pieces;
}

std::optional<std::vector<torch::Tensor*>> known_tensors_of(
    torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  using Tensors = std::vector<torch::Tensor*>;
  if (auto* const adam = dynamic_cast<AdamParamState*>(&state)) {
    return Tensors{&adam->exp_avg(), &adam->exp_avg_sq(), &adam->max_exp_avg_sq()};
  }
  if (auto* const adamw = dynamic_cast<AdamWParamState*>(&state)) {
    return Tensors{&adamw->exp_avg(), &adamw->exp_avg_sq(), &adamw->max_exp_avg_sq()};
  }
  if (auto* const sgd = dynamic_cast<SGDParamState*>(&state)) {
    return Tensors{&sgd->momentum_buffer()};
  }
  if (auto* const rmsprop = dynamic_cast<RMSpropParamState*>(&state)) {
    return Tensors{&rmsprop->square_avg(), &rmsprop->momentum_buffer(), &rmsprop->grad_avg()};
  }
  if (auto* const adagrad = dynamic_cast<AdagradParamState*>(&state)) {
    return Tensors{&adagrad->sum()};
  }
  return std::nullopt;
}

std::vector<torch::Tensor*> tensors_of(torch::optim::OptimizerParamState& state) {
  if (auto tensors = known_tensors_of(state)) return *std::move(tensors);
  raise(
      ErrorCode::kUnsupported,
      "ShardedOptimizer: this optimizer's state is none of LibTorch's, so which parts of it belong "
      "to which elements is not known; it can be neither saved nor loaded");
}

}  // namespace kolo
