// What DistributedDataParallel's ranks exchange besides gradients: the check that they have the
// same module, rank 0's values, and who lacks a gradient. Collective; called on the thread that
// uses the module. Private to bindings/torch.
#pragma once

#include "bindings/torch/tensors/agreed_layout.h"

#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/ddp_reducer.h>
#include <kolo/torch/tensor_work.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace kolo {

/// Throws on every rank if on one of them the names, shapes, types, strides or requires_grad of
/// `parameters` and `buffers`, or the options, differ from rank 0's. Throws, too, if the tensors do
/// not fit the options or another reducer owns a parameter.
void check_module(const std::string& prefix, const NamedTensors& parameters,
                  const NamedTensors& buffers, const DdpOptions& options);

/// Overwrites every tensor with rank 0's. Tensors of one type travel together. Throws
/// kInvalidArgument on every rank if a tensor does not fit its layout on some rank.
void broadcast_packed(const std::string& prefix, const std::vector<AgreedTensor>& tensors);

/// Like broadcast_packed(), before a forward. An error says what to do if ranks have joined.
void receive_buffers(const std::string& prefix, const std::vector<AgreedTensor>& buffers);

/// Tells all ranks which gradients are `missing` on this rank, by parameter, and the `failure` with
/// which it refused one, if any.
TensorWork tell_missing(const std::string& prefix, const std::vector<std::uint8_t>& missing,
                        const std::exception_ptr& failure);
/// Waits for tell_missing() and throws on every rank. If ranks have refused a gradient: the error
/// of the lowest such rank, with its number. Otherwise: kMismatch, with the parameters that lack a
/// gradient somewhere and the ranks.
[[noreturn]] void raise_missing(TensorWork& told, const NamedTensors& parameters);

}  // namespace kolo
