// Makes the ranks start from the same values. Collective: every rank passes the same names.
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

namespace kolo {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Overwrites every tensor by the root's, in place. Elements meet by their index: strides may
/// differ by rank, and stay. A mismatch of shape or type throws kMismatch and names the tensor,
/// after all others have ended.
KOLO_API void broadcast_parameters(const NamedTensors& tensors, int root);
KOLO_API void broadcast_parameters(const torch::OrderedDict<std::string, torch::Tensor>& tensors,
                                   int root);
/// Parameters and buffers of a module.
KOLO_API void broadcast_parameters(const torch::nn::Module& module, int root);

}  // namespace kolo
