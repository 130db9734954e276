// Which elements of which parameters each rank keeps. Used by ShardedParameters; pure, and the same
// on every rank. Private to bindings/torch.
#pragma once

#include "bindings/torch/tensors/agreed_layout.h"

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// A parameter and its position in its bucket.
struct ShardedParameter {
  std::string name;
  torch::Tensor tensor;
  std::size_t group = 0;    ///< group of the optimizer
  std::int64_t offset = 0;  ///< elements
  AgreedLayout layout = AgreedLayout(tensor);
};

/// Parameters of one type on one device that travel together, end to end, each in its agreed order.
struct ShardBucket {
  std::vector<std::size_t> parameters;
  std::int64_t size = 0;  ///< elements
};

/// Elements [begin, begin + size) of a parameter in its agreed order. They lie at offset `at` in
/// their rank's share of the bucket.
struct ShardPiece {
  std::size_t parameter = 0;
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t at = 0;
};

/// A rank's share of `bucket`, which is split as reducescatter() splits rows. No piece is empty.
std::vector<ShardPiece> pieces_of(const ShardBucket& bucket,
                                  const std::vector<ShardedParameter>& parameters, int rank,
                                  int size);

/// The types of LibTorch's states; LBFGS has one for all parameters together.
enum class StateKind : std::uint8_t { kNone, kAdam, kAdamW, kSgd, kRmsprop, kAdagrad };

/// What an optimizer keeps for a parameter.
struct KnownState {
  StateKind kind = StateKind::kNone;
  std::int64_t* step = nullptr;         ///< null if it does not count
  std::vector<torch::Tensor*> tensors;  ///< one element for each element of the parameter
};
/// Nothing for LBFGS and for states that are not LibTorch's.
std::optional<KnownState> known_state_of(torch::optim::OptimizerParamState& state);
/// Without tensors. Null for kNone.
std::unique_ptr<torch::optim::OptimizerParamState> new_state(StateKind kind);
/// The tensors of known_state_of().
std::optional<std::vector<torch::Tensor*>> known_tensors_of(
    torch::optim::OptimizerParamState& state);
/// Like known_tensors_of(), but throws kUnsupported instead of returning nothing.
std::vector<torch::Tensor*> tensors_of(torch::optim::OptimizerParamState& state);

}  // namespace kolo
