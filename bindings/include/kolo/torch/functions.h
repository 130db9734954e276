// Collectives on tensors. float32, float64, bfloat16 and int64 on the CPU; any shape and strides: a
// tensor that is not contiguous is copied and copied back. Autograd does not see them.
//
// Threads: any thread may submit, also several at once, as long as names differ or the unnamed
// calls come in one order on every rank. A TensorWork itself is used by one thread at a time.
// Errors: kolo::Exception, with the tensor's name.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <torch/torch.h>

#include <memory>
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

class TensorWork;

/// The general form of what follows: output = op over ranks of input. `absent` as in
/// AllreduceOptions.
KOLO_API TensorWork start_allreduce(torch::Tensor input, torch::Tensor output,
                                    const TensorAllreduceOptions& options, bool absent);
KOLO_API TensorWork start_broadcast(torch::Tensor tensor, int root,
                                    const TensorBroadcastOptions& options);

/// An operation on a tensor under way; keeps the memory alive.
class KOLO_API TensorWork {
 public:
  TensorWork() = default;

  bool valid() const { return work_ != nullptr; }
  /// Whether it has ended. Never blocks. Precondition: valid().
  bool done() const { return work_->done(); }
  /// Waits; the result. Throws what the operation failed with. May be called again.
  torch::Tensor wait();
  /// Waits until nobody touches the memory any more, whatever the outcome.
  void drain();
  /// As Work::contributors(). Precondition: done.
  int contributors() const { return work_->contributors(); }

 private:
  friend TensorWork start_allreduce(torch::Tensor, torch::Tensor, const TensorAllreduceOptions&,
                                    bool);
  friend TensorWork start_broadcast(torch::Tensor, int, const TensorBroadcastOptions&);
  std::shared_ptr<Work> work_;
  torch::Tensor result_;   ///< what the caller gets
  torch::Tensor staging_;  ///< contiguous memory of a result that is not
};

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

/// Waits; the result, or what the operation failed with.
KOLO_API torch::Tensor synchronize(TensorWork& work);
/// Whether the operation has ended; never blocks.
KOLO_API bool poll(const TensorWork& work);

}  // namespace kolo
