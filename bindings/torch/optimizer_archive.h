// An optimizer's state to and from LibTorch's archive, where LibTorch's own save() and load() do
// not do. Private to bindings/torch; the training loop's thread.
#pragma once

#include <torch/torch.h>

namespace kolo {

/// optimizer.save(), also for an LBFGS that has taken a step: LibTorch (2.15) cannot write its list
/// `al`, a scratch buffer of mostly undefined tensors, which is left out here. `optimizer` is
/// unchanged afterwards.
void save_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::OutputArchive& archive);

/// optimizer.load(), but nothing of the state from before remains.
void load_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::InputArchive& archive);

}  // namespace kolo
