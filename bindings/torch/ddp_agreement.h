// What DistributedDataParallel's ranks tell each other besides gradients: that they have the same
// module, rank 0's values, and who lacks a gradient. Collective; called on the thread that uses the
// module. Private to bindings/torch.
#pragma once

#include "bindings/torch/agreed_layout.h"

#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/ddp_reducer.h>
#include <kolo/torch/tensor_work.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace kolo {

/// Throws on every rank if on one of them `parameters` and `buffers` differ from rank 0's in names,
/// shapes, types, strides or requires_grad, or the options from rank 0's, the former do not fit the
/// latter, or have another owner.
void check_module(const std::string& prefix, const NamedTensors& parameters,
                  const NamedTensors& buffers, const DdpOptions& options);

/// Overwrites every tensor by rank 0's; tensors of one type travel together. Throws
/// kInvalidArgument on every rank if one of them does not fit its layout on some rank.
void broadcast_packed(const std::string& prefix, const std::vector<AgreedTensor>& tensors);

/// The same before a forward; an error says what to do where ranks have joined.
void receive_buffers(const std::string& prefix, const std::vector<AgreedTensor>& buffers);

/// Tells all ranks which gradients are `missing` on this one, by parameter, and why, if it has
/// refused one: by its `failure`, or none.
TensorWork tell_missing(const std::string& prefix, const std::vector<std::uint8_t>& missing,
                        const std::exception_ptr& failure);
/// Waits for what they tell. Throws on every rank what the lowest has that refused a gradient, with
/// its number; kMismatch if none has, with the name of each parameter that lacks a gradient
/// somewhere, and the ranks.
[[noreturn]] void raise_missing(TensorWork& told, const std::vector<std::string>& names);

}  // namespace kolo
