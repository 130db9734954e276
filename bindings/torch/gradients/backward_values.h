// Values that a loss carries to the reducers of its backward and that must be equal on all ranks,
// such as the scale of the loss. Any thread. Private to bindings/torch.
#pragma once

#include "bindings/torch/tensors/equal_values.h"

#include <torch/torch.h>

#include <vector>

namespace kolo {

/// Once a backward reaches `loss`, backward_values() returns these values. Does nothing for a loss
/// without a grad_fn.
void tell_with_backward(const torch::Tensor& loss, EqualValues values);
/// The values that backwards with these graph task numbers of autograd have reached, in their
/// order. Only the last few values of the process are kept.
EqualValues backward_values(const std::vector<int>& graph_tasks);

}  // namespace kolo
