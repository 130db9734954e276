// Makes the ranks' optimizers alike. Collective; the training loop's thread.
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

namespace kolo {

/// Every rank's optimizer takes over the root's state (moments, step counts, …) and options
/// (learning rate, weight decay, …), also where it had no state yet or the root has none. The
/// root's own stays as it is, to the bit: no step is taken for it. All optimizers of LibTorch, and
/// DistributedOptimizer. Throws kInvalidArgument, on every rank, if the groups or their parameters
/// are other ones than the root's, or of other sizes; optimizers are then as before.
KOLO_API void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root);

}  // namespace kolo
