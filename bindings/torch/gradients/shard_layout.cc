#include "bindings/torch/gradients/shard_layout.h"

#include "bindings/torch/tensors/tensor_memory.h"

#include <algorithm>
#include <utility>

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

std::optional<KnownState> known_state_of(torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  if (auto* const adam = dynamic_cast<AdamParamState*>(&state)) {
    return KnownState{StateKind::kAdam,
                      &adam->step(),
                      {&adam->exp_avg(), &adam->exp_avg_sq(), &adam->max_exp_avg_sq()}};
  }
  if (auto* const adamw = dynamic_cast<AdamWParamState*>(&state)) {
    return KnownState{StateKind::kAdamW,
                      &adamw->step(),
                      {&adamw->exp_avg(), &adamw->exp_avg_sq(), &adamw->max_exp_avg_sq()}};
  }
  if (auto* const sgd = dynamic_cast<SGDParamState*>(&state)) {
    return KnownState{StateKind::kSgd, nullptr, {&sgd->momentum_buffer()}};
  }
  if (auto* const rmsprop = dynamic_cast<RMSpropParamState*>(&state)) {
    return KnownState{StateKind::kRmsprop,
                      &rmsprop->step(),
                      {&rmsprop->square_avg(), &rmsprop->momentum_buffer(), &rmsprop->grad_avg()}};
  }
  if (auto* const adagrad = dynamic_cast<AdagradParamState*>(&state)) {
    return KnownState{StateKind::kAdagrad, &adagrad->step(), {&adagrad->sum()}};
  }
  return std::nullopt;
}

std::unique_ptr<torch::optim::OptimizerParamState> new_state(StateKind kind) {
  using namespace torch::optim;
  switch (kind) {
    case StateKind::kNone:
      return nullptr;
    case StateKind::kAdam:
      return std::make_unique<AdamParamState>();
    case StateKind::kAdamW:
      return std::make_unique<AdamWParamState>();
    case StateKind::kSgd:
      return std::make_unique<SGDParamState>();
    case StateKind::kRmsprop:
      return std::make_unique<RMSpropParamState>();
    case StateKind::kAdagrad:
      return std::make_unique<AdagradParamState>();
  }
  return nullptr;
}

std::optional<std::vector<torch::Tensor*>> known_tensors_of(
    torch::optim::OptimizerParamState& state) {
  auto known = known_state_of(state);
  if (!known) return std::nullopt;
  return std::move(known->tensors);
}

std::vector<torch::Tensor*> tensors_of(torch::optim::OptimizerParamState& state) {
  if (auto tensors = known_tensors_of(state)) return *std::move(tensors);
  raise(
      ErrorCode::kUnsupported,
      "ShardedOptimizer: this optimizer's state is none of LibTorch's, so which parts of it belong "
      "to which elements is not known; it can be neither saved nor loaded");
}

}  // namespace kolo
