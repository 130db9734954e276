// What a loss carries to whoever reduces gradients of its backward: values that must be equal on
// all ranks, such as the scale that it was multiplied by. Any thread. Private to bindings/torch.
#pragma once

#include "bindings/torch/equal_values.h"

#include <torch/torch.h>

#include <vector>

namespace kolo {

/// From the moment a backward reaches `loss`, backward_values() has these. Nothing for a loss that
/// no function has made.
void tell_with_backward(const torch::Tensor& loss, EqualValues values);
/// Those that backwards with these of autograd's numbers (graph tasks) have reached so far, in
/// their order; of the last few backwards of the process.
EqualValues backward_values(const std::vector<int>& graph_tasks);

}  // namespace kolo
