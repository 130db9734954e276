// An optimizer's state to and from LibTorch's archive, where LibTorch's own save() and load() do
// not do. Private to bindings/torch; the training loop's thread.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <type_traits>
#include <vector>

namespace kolo {

/// optimizer.save(), also for an LBFGS that has taken a step: LibTorch (2.15) cannot write its list
/// `al`, a scratch buffer of mostly undefined tensors, which is left out here. `optimizer` is
/// unchanged afterwards.
void save_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::OutputArchive& archive);

/// Takes an optimizer's state out and keeps its options, for a load that may have to be undone.
class OptimizerBefore {
 public:
  explicit OptimizerBefore(torch::optim::Optimizer& optimizer);
  void restore();

 private:
  torch::optim::Optimizer& optimizer_;
  std::remove_cvref_t<decltype(optimizer_.state())> state_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options_;  ///< by group
};

/// optimizer.load(), but nothing of the state from before remains, and a parameter may be listed
/// more than once, as parameters() lists a tied weight. Throws kInvalidArgument if it was so when
/// the state was saved, and is not now.
void load_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::InputArchive& archive);
/// Throws kInvalidArgument if LibTorch's load() found the state of one parameter for several, as
/// load_optimizer() does.
void check_ties(torch::optim::Optimizer& optimizer);
/// Throws kInvalidArgument if the state of some parameter is for other sizes than it has, which
/// LibTorch's load() takes, too.
void check_state_sizes(torch::optim::Optimizer& optimizer);

}  // namespace kolo
