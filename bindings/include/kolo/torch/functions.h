// Collectives on tensors: allreduce, broadcast and messages. row_functions.h has the collectives
// that count in rows.
//
//   torch::Tensor mean = kolo::allreduce(loss, {.op = kolo::ReduceOp::kAverage, .name = "loss"});
//   kolo::TensorWork work = kolo::allreduce_async_(tensor, {.name = "tensor"});
//   // … compute …
//   work.wait();
//
// - Tensors may have any shape and strides. They are on the CPU or on this rank's CUDA device. kolo
//   copies a tensor that is not contiguous, and copies the result back.
// - All tensors of a call are on one device. All ranks use the CPU, or all use CUDA.
// - Autograd does not record these calls; see autograd_functions.h.
// - CUDA: an operation starts after the work that the calling thread's current stream was given
//   before the call. wait() and the blocking forms make the waiting thread's current stream wait
//   for the result. The host waits only until the ranks have agreed and the work is enqueued. So
//   the calls order with streams like LibTorch's own, and tensors may be dropped at once.
// - Threads: any thread may submit, also several at once, if the names differ or the unnamed calls
//   come in the same order on every rank. One thread at a time uses a TensorWork.
// - Errors: kolo::Exception, with the tensor's name.
// - A call that is wrong on one rank alone fails on all: wait() throws kInvalidArgument with that
//   rank and the reason, and nothing else fails. Such a tensor is undefined, sparse, or of a type
//   or device that kolo does not support, or elements of the output share memory, as after
//   expand().
// - A message throws such an error at once. The peer's message that would meet it fails with the
//   rank and the reason.
// - An unnamed call on a tensor without a type that kolo supports throws at once, on that rank
//   alone. Ranks know an unnamed call by type and shape, so no rank could tell which of theirs is
//   meant: the others wait for it until their timeout. Later unnamed calls of this kind only meet
//   those of ranks on which as many have thrown, until a join(). So name calls that may go wrong.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/row_functions.h>
#include <kolo/torch/tensor_work.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

/// Operation, name and factors of an all-reduce.
struct TensorAllreduceOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string name = {};  ///< as AllreduceOptions::name
  /// Multiplies every rank's input before the reduction, where integers truncate toward zero.
  double prescale = 1.0;
  double postscale = 1.0;  ///< multiplies the result
  ProcessSet process_set = {};
};

struct TensorBroadcastOptions {
  std::string name = {};  ///< as BroadcastOptions::name
  ProcessSet process_set = {};
};

/// The general form of the functions below: output = op over ranks of input. `absent` as in
/// AllreduceOptions.
KOLO_API TensorWork start_allreduce(torch::Tensor input, torch::Tensor output,
                                    const TensorAllreduceOptions& options, bool absent);
KOLO_API TensorWork start_broadcast(torch::Tensor tensor, int root,
                                    const TensorBroadcastOptions& options);

/// Returns a new tensor: the reduction of every rank's `tensor`.
KOLO_API torch::Tensor allreduce(const torch::Tensor& tensor,
                                 const TensorAllreduceOptions& options = {});
/// Reduces in place; returns `tensor`.
KOLO_API torch::Tensor allreduce_(torch::Tensor tensor, const TensorAllreduceOptions& options = {});
KOLO_API TensorWork allreduce_async(const torch::Tensor& tensor,
                                    const TensorAllreduceOptions& options = {});
KOLO_API TensorWork allreduce_async_(torch::Tensor tensor,
                                     const TensorAllreduceOptions& options = {});

/// A member of a group, with its own name. `absent` as in AllreduceOptions.
struct TensorGroupMember {
  torch::Tensor input;
  torch::Tensor output;
  std::string name;
  bool absent = false;
};
/// Like start_allreduce, for a group that has a name. Returns one work a member.
KOLO_API std::vector<TensorWork> start_grouped_allreduce(std::vector<TensorGroupMember> members,
                                                         const TensorAllreduceOptions& options);

/// Several all-reduces, all or none; see <kolo/collectives.h>. `name` is the group's name.
KOLO_API std::vector<torch::Tensor> grouped_allreduce(const std::vector<torch::Tensor>& tensors,
                                                      const TensorAllreduceOptions& options = {});
/// Reduces in place; returns `tensors`.
KOLO_API std::vector<torch::Tensor> grouped_allreduce_(std::vector<torch::Tensor> tensors,
                                                       const TensorAllreduceOptions& options = {});
/// Returns one work a member, each with its own status.
KOLO_API std::vector<TensorWork> grouped_allreduce_async(
    const std::vector<torch::Tensor>& tensors, const TensorAllreduceOptions& options = {});
KOLO_API std::vector<TensorWork> grouped_allreduce_async_(
    std::vector<torch::Tensor> tensors, const TensorAllreduceOptions& options = {});

/// A sparse all-reduce in flight. Used by one thread at a time, like TensorWork.
class KOLO_API SparseWork {
 public:
  /// Whether the operation has ended. Never blocks.
  bool done() const { return parts_.done(); }
  /// Waits and returns the result. Throws the operation's failure. May be called again.
  torch::Tensor wait();
  /// Waits until the operation has ended or `until` has passed. Returns done().
  bool wait_until(std::chrono::steady_clock::time_point until) const;

 private:
  friend KOLO_API SparseWork sparse_allreduce_async(const torch::Tensor& tensor,
                                                    const TensorAllreduceOptions& options);
  TensorAllreduceOptions options_;
  torch::Tensor result_;
  TensorWork parts_;  ///< every rank's indices and values
};

/// Returns a new coalesced sparse (COO) tensor: the sum or average of every rank's sparse `tensor`.
/// All have one shape. kolo allgathers indices and values, so it pays where few rows are set.
KOLO_API torch::Tensor sparse_allreduce(const torch::Tensor& tensor,
                                        const TensorAllreduceOptions& options = {});
KOLO_API SparseWork sparse_allreduce_async(const torch::Tensor& tensor,
                                           const TensorAllreduceOptions& options = {});

struct TensorMessageOptions {
  std::uint32_t tag = 0;
  ProcessSet process_set = {};
};
/// Sends one message to rank `to`; see <kolo/collectives.h>.
KOLO_API void send(const torch::Tensor& tensor, int to, const TensorMessageOptions& options = {});
KOLO_API TensorWork send_async(const torch::Tensor& tensor, int to,
                               const TensorMessageOptions& options = {});
/// Receives into `tensor`, which has the sender's count and type; returns it.
KOLO_API torch::Tensor recv_(torch::Tensor tensor, int from,
                             const TensorMessageOptions& options = {});
KOLO_API TensorWork recv_async_(torch::Tensor tensor, int from,
                                const TensorMessageOptions& options = {});

/// Returns a new tensor: the root's `tensor`. Every rank passes a tensor of the same shape and
/// type.
KOLO_API torch::Tensor broadcast(const torch::Tensor& tensor, int root,
                                 const TensorBroadcastOptions& options = {});
/// Broadcasts in place; returns `tensor`.
KOLO_API torch::Tensor broadcast_(torch::Tensor tensor, int root,
                                  const TensorBroadcastOptions& options = {});
KOLO_API TensorWork broadcast_async(const torch::Tensor& tensor, int root,
                                    const TensorBroadcastOptions& options = {});
KOLO_API TensorWork broadcast_async_(torch::Tensor tensor, int root,
                                     const TensorBroadcastOptions& options = {});

}  // namespace kolo
