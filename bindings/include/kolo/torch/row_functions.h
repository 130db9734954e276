// Collectives that count in rows, on tensors: the first dimension is split, or differs from rank to
// rank; all others are alike on every rank. Any strides; results have the memory format of this
// rank's tensor (contiguous, channels_last). Autograd does not see them. Threads and errors as in
// functions.h; what is said of names, rows and errors in <kolo/collectives.h> holds here.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/tensor_work.h>
#include <torch/torch.h>

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

/// A new tensor: the rows of every rank's `tensor`, in order of rank.
KOLO_API torch::Tensor allgather(const torch::Tensor& tensor,
                                 const TensorAllgatherOptions& options = {});
KOLO_API TensorWork allgather_async(const torch::Tensor& tensor,
                                    const TensorAllgatherOptions& options = {});

struct AlltoallResult {
  torch::Tensor output;                       ///< rows from rank 0, then from rank 1, …
  std::vector<std::int64_t> received_splits;  ///< how many from each
};

/// Sends splits[r] rows to rank r; no splits: evenly.
KOLO_API AlltoallResult alltoall(const torch::Tensor& tensor,
                                 const std::vector<std::int64_t>& splits = {},
                                 const TensorAlltoallOptions& options = {});
KOLO_API TensorWork alltoall_async(const torch::Tensor& tensor,
                                   const std::vector<std::int64_t>& splits = {},
                                   const TensorAlltoallOptions& options = {});

/// A new tensor: this rank's rows of the reduction of every rank's `tensor`; the first
/// `rows mod size` ranks get one row more than the others.
KOLO_API torch::Tensor reducescatter(const torch::Tensor& tensor,
                                     const TensorReducescatterOptions& options = {});
KOLO_API TensorWork reducescatter_async(const torch::Tensor& tensor,
                                        const TensorReducescatterOptions& options = {});

/// Several allgathers, all or none: see grouped_allgather_async of <kolo/collectives.h>; `name` is
/// the group's. New tensors, in the order of `tensors`.
KOLO_API std::vector<torch::Tensor> grouped_allgather(const std::vector<torch::Tensor>& tensors,
                                                      const TensorAllgatherOptions& options = {});
/// A work by member, each with its own outcome.
KOLO_API std::vector<TensorWork> grouped_allgather_async(
    const std::vector<torch::Tensor>& tensors, const TensorAllgatherOptions& options = {});
/// Several reducescatters, all or none.
KOLO_API std::vector<torch::Tensor> grouped_reducescatter(
    const std::vector<torch::Tensor>& tensors, const TensorReducescatterOptions& options = {});
KOLO_API std::vector<TensorWork> grouped_reducescatter_async(
    const std::vector<torch::Tensor>& tensors, const TensorReducescatterOptions& options = {});

/// As allgather at the root; a tensor without rows elsewhere.
KOLO_API torch::Tensor gather(const torch::Tensor& tensor, int root,
                              const TensorGatherOptions& options = {});
KOLO_API TensorWork gather_async(const torch::Tensor& tensor, int root,
                                 const TensorGatherOptions& options = {});

/// A new tensor: splits[rank] rows of the root's `tensor`; no splits: evenly. Of the other ranks'
/// tensors only the type and the shape of a row matter.
KOLO_API torch::Tensor scatter(const torch::Tensor& tensor, int root,
                               const std::vector<std::int64_t>& splits = {},
                               const TensorScatterOptions& options = {});
KOLO_API TensorWork scatter_async(const torch::Tensor& tensor, int root,
                                  const std::vector<std::int64_t>& splits = {},
                                  const TensorScatterOptions& options = {});

}  // namespace kolo
