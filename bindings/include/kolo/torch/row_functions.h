// Collectives on tensors that count in rows. The first dimension is split, or differs between
// ranks; all other dimensions are the same on every rank.
//
//   torch::Tensor all = kolo::allgather(mine, {.name = "embeddings"});  // rows of all ranks
//   auto [received, splits] = kolo::alltoall(mine, {3, 5}, {.name = "tokens"});
//
// - Tensors may have any strides. Results have the memory format of this rank's tensor (contiguous,
//   channels_last).
// - Autograd does not record these calls; see autograd_functions.h.
// - functions.h has the rules on threads and errors, <kolo/collectives.h> those on names and rows.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/tensor_work.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

struct TensorAllgatherOptions {
  std::string name = {};
  ProcessSet process_set = {};
};
using TensorAlltoallOptions = TensorAllgatherOptions;
using TensorGatherOptions = TensorAllgatherOptions;
using TensorScatterOptions = TensorAllgatherOptions;

struct TensorReducescatterOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string name = {};
  double prescale = 1.0;
  double postscale = 1.0;
  ProcessSet process_set = {};
};

/// Returns a new tensor: the rows of every rank's `tensor`, in rank order.
KOLO_API torch::Tensor allgather(const torch::Tensor& tensor,
                                 const TensorAllgatherOptions& options = {});
KOLO_API TensorWork allgather_async(const torch::Tensor& tensor,
                                    const TensorAllgatherOptions& options = {});

struct AlltoallResult {
  torch::Tensor output;                       ///< rows from rank 0, then from rank 1, …
  std::vector<std::int64_t> received_splits;  ///< number of rows from each rank
};

/// Sends splits[r] rows to rank r. Without splits the rows are divided evenly.
KOLO_API AlltoallResult alltoall(const torch::Tensor& tensor,
                                 const std::vector<std::int64_t>& splits = {},
                                 const TensorAlltoallOptions& options = {});
KOLO_API TensorWork alltoall_async(const torch::Tensor& tensor,
                                   const std::vector<std::int64_t>& splits = {},
                                   const TensorAlltoallOptions& options = {});

/// Returns a new tensor: this rank's rows of the reduction of every rank's `tensor`. The first
/// `rows mod size` ranks get one row more than the others.
KOLO_API torch::Tensor reducescatter(const torch::Tensor& tensor,
                                     const TensorReducescatterOptions& options = {});
KOLO_API TensorWork reducescatter_async(const torch::Tensor& tensor,
                                        const TensorReducescatterOptions& options = {});

/// Several allgathers, all or none; see grouped_allgather_async in <kolo/collectives.h>. `name` is
/// the group's name. Returns new tensors, in the order of `tensors`.
KOLO_API std::vector<torch::Tensor> grouped_allgather(const std::vector<torch::Tensor>& tensors,
                                                      const TensorAllgatherOptions& options = {});
/// Returns one work a member, each with its own status.
KOLO_API std::vector<TensorWork> grouped_allgather_async(
    const std::vector<torch::Tensor>& tensors, const TensorAllgatherOptions& options = {});
/// Several reducescatters, all or none.
KOLO_API std::vector<torch::Tensor> grouped_reducescatter(
    const std::vector<torch::Tensor>& tensors, const TensorReducescatterOptions& options = {});
KOLO_API std::vector<TensorWork> grouped_reducescatter_async(
    const std::vector<torch::Tensor>& tensors, const TensorReducescatterOptions& options = {});

/// Like allgather at the root; returns a tensor without rows elsewhere.
KOLO_API torch::Tensor gather(const torch::Tensor& tensor, int root,
                              const TensorGatherOptions& options = {});
KOLO_API TensorWork gather_async(const torch::Tensor& tensor, int root,
                                 const TensorGatherOptions& options = {});

/// Returns a new tensor: splits[rank] rows of the root's `tensor`. Without splits the rows are
/// divided evenly. On the other ranks only the type and the shape of a row of `tensor` matter.
KOLO_API torch::Tensor scatter(const torch::Tensor& tensor, int root,
                               const std::vector<std::int64_t>& splits = {},
                               const TensorScatterOptions& options = {});
KOLO_API TensorWork scatter_async(const torch::Tensor& tensor, int root,
                                  const std::vector<std::int64_t>& splits = {},
                                  const TensorScatterOptions& options = {});

}  // namespace kolo
