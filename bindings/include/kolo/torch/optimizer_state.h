// Makes the optimizers of all ranks equal. Collective; used by the training loop's thread.
//
//   kolo::broadcast_parameters(*model, /*root=*/0);
//   kolo::broadcast_optimizer_state(optimizer, /*root=*/0);
#pragma once

#include <kolo/export.h>
#include <torch/optim/optimizer.h>

namespace kolo {

/// Copies the root's state (moments, step counts, …) and options (learning rate, weight decay, …)
/// to every rank's optimizer.
/// - It also works where a rank had no state yet or the root has none.
/// - The root's optimizer stays unchanged, bit for bit: no step is taken.
/// - It supports all optimizers of LibTorch, and DistributedOptimizer.
/// - Throws kInvalidArgument on every rank if a rank's groups or parameters, or their sizes, differ
///   from the root's. Optimizers stay unchanged then.
KOLO_API void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root);

}  // namespace kolo
