// Makes the ranks start from the same values. Used by the training loop's thread.
//
//   kolo::broadcast_parameters(*model, /*root=*/0);  // parameters and buffers
//
// Collective: every rank passes the same names.
#pragma once

#include <kolo/export.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace kolo {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Overwrites every tensor in place with the root's. Elements are matched by index, so strides may
/// differ between ranks and stay as they are. A different shape or type throws kMismatch and names
/// the tensor, after all other tensors have ended.
KOLO_API void broadcast_parameters(const NamedTensors& tensors, int root);
KOLO_API void broadcast_parameters(const torch::OrderedDict<std::string, torch::Tensor>& tensors,
                                   int root);
/// Broadcasts the parameters and buffers of a module.
KOLO_API void broadcast_parameters(const torch::nn::Module& module, int root);

}  // namespace kolo
