// Collectives on tensors: allreduce, broadcast and messages; those that count in rows come with
// row_functions.h. Tensors of any shape and strides, on the CPU or on this rank's CUDA device: one
// that is not contiguous is copied and copied back. Autograd does not see them.
//
// CUDA tensors: an operation starts after what the current stream of the calling thread was given
// before the call. wait(), and the blocking forms, let the current stream of the waiting thread go
// on after the result; the host waits for agreement and handing in alone. So kolo's calls stand
// among a program's own as LibTorch's do, whatever streams it uses, and tensors may be dropped at
// once. All tensors of a call are on one device, and on all ranks alike on the CPU or on CUDA.
//
// Threads: any thread may submit, also several at once, as long as names differ or the unnamed
// calls come in one order on every rank. A TensorWork itself is used by one thread at a time.
// Errors: kolo::Exception, with the tensor's name. A call that is wrong on one rank alone (its
// tensor is undefined, sparse, or of a type or device that kolo does not take; elements of its
// output share memory, as after expand()) fails on all: wait() throws kInvalidArgument with that
// rank and the reason, and nothing else fails. Two calls throw at once, on that rank alone, and the
// others wait for it: a message, and one without a name whose tensor has no type of kolo's. So name
// the calls that may go wrong.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/row_functions.h>
#include <kolo/torch/tensor_work.h>
#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

/// What to do with a tensor, and what to call it.
struct TensorAllreduceOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string name = {};   ///< as AllreduceOptions::name
  double prescale = 1.0;   ///< multiplies every rank's input before the sum
  double postscale = 1.0;  ///< multiplies the result
  ProcessSet process_set = {};
};

struct TensorBroadcastOptions {
  std::string name = {};  ///< as BroadcastOptions::name
  ProcessSet process_set = {};
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

/// A member of a group with its own name; `absent` as in AllreduceOptions.
struct TensorGroupMember {
  torch::Tensor input;
  torch::Tensor output;
  std::string name;
  bool absent = false;
};
/// As start_allreduce, of a group that has a name. Work by member.
KOLO_API std::vector<TensorWork> start_grouped_allreduce(std::vector<TensorGroupMember> members,
                                                         const TensorAllreduceOptions& options);

/// Several at once, all or none: see <kolo/collectives.h>. `name` is the group's.
KOLO_API std::vector<torch::Tensor> grouped_allreduce(const std::vector<torch::Tensor>& tensors,
                                                      const TensorAllreduceOptions& options = {});
/// In place; returns `tensors`.
KOLO_API std::vector<torch::Tensor> grouped_allreduce_(std::vector<torch::Tensor> tensors,
                                                       const TensorAllreduceOptions& options = {});
/// A work by member, each with its own outcome.
KOLO_API std::vector<TensorWork> grouped_allreduce_async(
    const std::vector<torch::Tensor>& tensors, const TensorAllreduceOptions& options = {});
KOLO_API std::vector<TensorWork> grouped_allreduce_async_(
    std::vector<torch::Tensor> tensors, const TensorAllreduceOptions& options = {});

/// A new coalesced sparse (COO) tensor: the sum or average of every rank's sparse `tensor`, of one
/// shape; by allgathers of indices and values, so it pays where few rows are set.
KOLO_API torch::Tensor sparse_allreduce(const torch::Tensor& tensor,
                                        const TensorAllreduceOptions& options = {});

struct TensorMessageOptions {
  std::uint32_t tag = 0;
  ProcessSet process_set = {};
};
/// One message to rank `to`; see <kolo/collectives.h>.
KOLO_API void send(const torch::Tensor& tensor, int to, const TensorMessageOptions& options = {});
KOLO_API TensorWork send_async(const torch::Tensor& tensor, int to,
                               const TensorMessageOptions& options = {});
/// Into `tensor`, which has the sender's count and type; returns it.
KOLO_API torch::Tensor recv_(torch::Tensor tensor, int from,
                             const TensorMessageOptions& options = {});
KOLO_API TensorWork recv_async_(torch::Tensor tensor, int from,
                                const TensorMessageOptions& options = {});

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
