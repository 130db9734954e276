// Collectives on tensors: allreduce and broadcast; those that count in rows come with
// row_functions.h. CPU tensors of any shape and strides: one that is not contiguous is copied and
// copied back. Autograd does not see them.
//
// Threads: any thread may submit, also several at once, as long as names differ or the unnamed
// calls come in one order on every rank. A TensorWork itself is used by one thread at a time.
// Errors: kolo::Exception, with the tensor's name.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/row_functions.h>
#include <kolo/torch/tensor_work.h>
#include <torch/torch.h>

#include <string>

namespace kolo {

/// What to do with a tensor, and what to call it.
struct TensorAllreduceOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string name = {};   ///< as AllreduceOptions::name
  double prescale = 1.0;   ///< multiplies every rank's input before the sum
  double postscale = 1.0;  ///< multiplies the result
};

struct TensorBroadcastOptions {
  std::string name = {};  ///< as BroadcastOptions::name
};

/// The general form of what follows: output = op over ranks of input. `absent` as in
/// AllreduceOptions.
KOLO_API TensorWork start_allreduce(torch::Tensor input, torch::Tensor output,
                                    const TensorAllreduceOptions& options, bool absent);
KOLO_API TensorWork start_broadcast(torch::Tensor tensor, int root,
                                    const TensorBroadcastOptions& options);

/// A new tensor: the reduction of every rank's `tensor`.
KOLO_API torch::Tensor allreduce(const torch::Tensor& tensor,
                                 const TensorAllreduceOptions& options = {});
/// In place; returns `tensor`.
KOLO_API torch::Tensor allreduce_(torch::Tensor tensor, const TensorAllreduceOptions& options = {});
KOLO_API TensorWork allreduce_async(const torch::Tensor& tensor,
                                    const TensorAllreduceOptions& options = {});
KOLO_API TensorWork allreduce_async_(torch::Tensor tensor,
                                     const TensorAllreduceOptions& options = {});

/// A new tensor: the root's `tensor`. Every rank passes one of the same shape and type.
KOLO_API torch::Tensor broadcast(const torch::Tensor& tensor, int root,
                                 const TensorBroadcastOptions& options = {});
/// In place; returns `tensor`.
KOLO_API torch::Tensor broadcast_(torch::Tensor tensor, int root,
                                  const TensorBroadcastOptions& options = {});
KOLO_API TensorWork broadcast_async(const torch::Tensor& tensor, int root,
                                    const TensorBroadcastOptions& options = {});
KOLO_API TensorWork broadcast_async_(torch::Tensor tensor, int root,
                                     const TensorBroadcastOptions& options = {});

}  // namespace kolo
