// Saves and loads an optimizer's state in LibTorch's archives, for cases that LibTorch's own save()
// and load() do not handle. Private to bindings/torch; the training loop's thread.
#pragma once

#include <kolo/torch/sharded_parameters.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace kolo {

/// Like optimizer.save(), but also saves an LBFGS that has taken a step. LibTorch (2.15) cannot
/// write its list `al`, a scratch buffer of mostly undefined tensors, so the list is left out.
/// `optimizer` is unchanged afterwards.
void save_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::OutputArchive& archive);

/// Takes an optimizer's state out and copies its options, for a load that may have to be undone.
class OptimizerBefore {
 public:
  explicit OptimizerBefore(torch::optim::Optimizer& optimizer);
  void restore();

 private:
  torch::optim::Optimizer& optimizer_;
  std::remove_cvref_t<decltype(optimizer_.state())> state_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options_;  ///< by group
  ShardedState* sharded_;  ///< the optimizer, or null
  std::uint32_t loaded_;   ///< by a ShardedState
};

/// Like optimizer.load(), but drops all earlier state, and accepts a parameter that is listed more
/// than once, as parameters() lists a tied weight. Throws kInvalidArgument if a weight was tied
/// when the state was saved, and is not now.
void load_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::InputArchive& archive);
/// Throws kInvalidArgument if LibTorch's load() found the state of one parameter for several.
/// load_optimizer() calls it.
void check_ties(torch::optim::Optimizer& optimizer);
/// Throws kInvalidArgument if the state of some parameter is for other sizes than the parameter's.
/// LibTorch's load() accepts such a state.
void check_state_sizes(torch::optim::Optimizer& optimizer);

}  // namespace kolo
