// The collectives as functions that autograd sees: for a loss that depends on other ranks' tensors
// (synchronised batch norm, gathered embeddings, model parallelism). Backward is a collective too,
// so every rank that runs forward runs backward, in the same order; it is unnamed.
//
// Gradients are those of the sum over ranks of each rank's loss, as Horovod's are: what allreduce
// sums forward it sums backward, what allgather collects reducescatter deals back, and so on. With
// create_graph backward is seen, too, for penalties of gradients: on all ranks or on none.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/functions.h>
#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace kolo::autograd {

/// Sum or average; kUnsupported for others.
KOLO_API torch::Tensor allreduce(const torch::Tensor& tensor,
                                 const TensorAllreduceOptions& options = {});
/// The root's gradient is the sum of all ranks', that of the others zero.
KOLO_API torch::Tensor broadcast(const torch::Tensor& tensor, int root,
                                 const TensorBroadcastOptions& options = {});
KOLO_API torch::Tensor allgather(const torch::Tensor& tensor,
                                 const TensorAllgatherOptions& options = {});
KOLO_API torch::Tensor alltoall(const torch::Tensor& tensor,
                                const std::vector<std::int64_t>& splits = {},
                                const TensorAlltoallOptions& options = {});
/// Sum or average; kUnsupported for others.
KOLO_API torch::Tensor reducescatter(const torch::Tensor& tensor,
                                     const TensorReducescatterOptions& options = {});

}  // namespace kolo::autograd
