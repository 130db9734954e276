// Collectives that autograd records, for a loss that depends on other ranks' tensors (synchronised
// batch norm, gathered embeddings, model parallelism).
//
//   torch::Tensor all = kolo::autograd::allgather(embeddings);
//   contrastive_loss(embeddings, all).backward();  // collective, too
//
// - Backward is collective and unnamed. So every rank that runs forward runs backward, in the same
//   order.
// - Gradients are those of the sum over ranks of each rank's loss. For example, backward of
//   allreduce sums, and backward of allgather is a reducescatter. Horovod's differ: an allgather's
//   and a broadcast's are divided by the number of ranks, a reducescatter's is multiplied by it.
// - With create_graph, autograd also records backward, for penalties on gradients. Use it on all
//   ranks or on none.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/functions.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace kolo::autograd {

/// Sum or average; throws kUnsupported for other operations.
KOLO_API torch::Tensor allreduce(const torch::Tensor& tensor,
                                 const TensorAllreduceOptions& options = {});
/// The root's gradient is the sum of all ranks' gradients; the gradient of the others is zero.
KOLO_API torch::Tensor broadcast(const torch::Tensor& tensor, int root,
                                 const TensorBroadcastOptions& options = {});
KOLO_API torch::Tensor allgather(const torch::Tensor& tensor,
                                 const TensorAllgatherOptions& options = {});
KOLO_API torch::Tensor alltoall(const torch::Tensor& tensor,
                                const std::vector<std::int64_t>& splits = {},
                                const TensorAlltoallOptions& options = {});
/// Sum or average; throws kUnsupported for other operations.
KOLO_API torch::Tensor reducescatter(const torch::Tensor& tensor,
                                     const TensorReducescatterOptions& options = {});

}  // namespace kolo::autograd
