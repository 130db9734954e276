// What DistributedDataParallel's ranks tell each other besides gradients: that they have the same
// module, rank 0's values, and who lacks a gradient. Collective; called on the thread that uses the
// module. Private to bindings/torch.
#pragma once

#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/ddp_reducer.h>
#include <kolo/torch/tensor_work.h>

#include <string>
#include <vector>

namespace kolo {

/// Throws on every rank if on one of them `parameters` and `buffers` differ from rank 0's in names,
/// shapes, types, strides or requires_grad, do not fit the options, or have another owner.
void check_module(const std::string& prefix, const NamedTensors& parameters,
                  const NamedTensors& buffers, const DdpOptions& options);

/// Overwrites every tensor by rank 0's; tensors of one type travel together.
void broadcast_packed(const std::string& prefix, const NamedTensors& tensors);

/// Tells all ranks which gradients are `missing` on this one, by parameter.
TensorWork tell_missing(const std::string& prefix, const std::vector<bool>& missing);
/// Waits for what they tell. Throws kMismatch on every rank, with the name of each parameter that
/// lacks a gradient somewhere, and the ranks.
[[noreturn]] void raise_missing(TensorWork& told, const std::vector<std::string>& names);

}  // namespace kolo
