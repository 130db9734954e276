// Starts kolo's operations on the tensors of a c10d call, or refuses the call. User threads; one
// thread at a time for each group.
#pragma once

#include "bindings/c10d/work.h"
#include "bindings/core/host_exceptions.h"
#include "bindings/core/refusals.h"
#include "bindings/torch/tensors/device_stream.h"

#include <kolo/kolo.h>
#include <kolo/torch/objects.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo::c10d_binding {

/// A call that this rank may refuse, as the other ranks know it: by its order.
struct Called {
  OperationKind kind;
  bool in_order = false;  ///< by in-order submission: parts are equal on all ranks and on the host
  std::size_t operations = 1;
};
/// A message; `peer` is a rank of the world.
struct CalledMessage {
  OperationKind kind;
  int peer;
  int tag;
};
/// Keeps this rank in step when a call fails here at once. A refused operation takes the place of
/// each operation of the call. A negotiated one fails on all ranks, and nothing else; otherwise the
/// ranks that do not fail get the error.
void call_refused(const ProcessSet& set, const Called& called, const std::string& why);
/// The peer's message that would meet this one fails, and nothing else.
void call_refused(const ProcessSet& set, const CalledMessage& called, const std::string& why);

/// Returns the result of `check`, which checks all arguments of a call before the call starts. An
/// exception of `check` refuses the call.
template <class Call = Called, class Check>
auto checked(const ProcessSet& set, const Call& called, Check&& check) {
  return throwing_for_host([&] {
    return kolo::checked(std::forward<Check>(check), [&](const std::exception& error) {
      call_refused(set, called, reason_of(error));
    });
  });
}

/// Maps the operation to kolo's. Throws kUnsupported if kolo has none for these tensors. Called for
/// all tensors of a call before the first operation starts.
ReduceOp reduce_op(const c10d::ReduceOp& op, const torch::Tensor& tensor, const char* call);
/// The input of a reduction by `op`: PREMUL_SUM multiplies it by this rank's factor; BAND, BOR and
/// BXOR make a byte of each bit, by which kolo has minimum, maximum and a sum whose last bit
/// counts.
torch::Tensor reduced_form(const torch::Tensor& input, const c10d::ReduceOp& op);

/// An output of any strides, and the contiguous memory that stands in for it during the operation.
class Output {
 public:
  /// `with_elements`: the operation reads the tensor's elements.
  explicit Output(torch::Tensor tensor, bool with_elements = false);
  /// Takes the result of a reduction of reduced_form().
  Output(torch::Tensor tensor, const c10d::ReduceOp& op);
  const torch::Tensor& memory() const { return memory_; }
  /// The memory is not the tensor's own.
  bool is_elsewhere() const { return tensor_.defined(); }
  /// Copies the result to the tensor if the operation wrote it elsewhere.
  void finish() const;

 private:
  torch::Tensor tensor_;  ///< undefined if the memory is its own
  torch::Tensor memory_;
  bool is_bits_ = false;  ///< the memory has a byte for each bit
};

/// Returns a function that calls finish() on all outputs that are elsewhere; none if none is.
std::function<void()> finishing(const Output& output);
std::function<void()> finishing(std::vector<Output> elsewhere);

// Calls whose parts are equal on all ranks. On the host they use in-order submission; elsewhere
// they are negotiated by their order. Tensors are contiguous, and all of one type and device.
// `will_wait`: OrderedArguments::will_wait.
std::shared_ptr<Work> start_allreduce(const ProcessSet& set, const torch::Tensor& input,
                                      const torch::Tensor& output, ReduceOp op, bool will_wait);
std::shared_ptr<Work> start_broadcast(const ProcessSet& set, const torch::Tensor& tensor, int root,
                                      bool will_wait);
/// The output holds the ranks' inputs end to end.
std::shared_ptr<Work> start_allgather(const ProcessSet& set, const torch::Tensor& input,
                                      const torch::Tensor& output, bool will_wait);
/// The root's output holds the ranks' inputs end to end; the other ranks' is ignored.
std::shared_ptr<Work> start_gather_on_host(const ProcessSet& set, const torch::Tensor& input,
                                           const torch::Tensor& output, int root, bool will_wait);
/// The input holds a part for each rank, end to end.
std::shared_ptr<Work> start_reduce_scatter(const ProcessSet& set, const torch::Tensor& input,
                                           const torch::Tensor& output, ReduceOp op,
                                           bool will_wait);
std::shared_ptr<Work> start_barrier(const ProcessSet& set, bool will_wait);

// Messages; `tag` is 0 or more.
std::shared_ptr<Work> start_send(const ProcessSet& set, const torch::Tensor& tensor, int to,
                                 int tag);
std::shared_ptr<Work> start_recv(const ProcessSet& set, const torch::Tensor& tensor, int from,
                                 int tag);
std::shared_ptr<Work> start_recv_from_any(const ProcessSet& set, const torch::Tensor& tensor,
                                          int tag);

/// Receives parts from the ranks; the caller states the expected sizes beforehand. The operation is
/// negotiated by its order. Holds the flat memory of all parts, end to end, and the operation that
/// fills it.
class Parts {
 public:
  /// `expected`: number of elements from each rank of the group.
  Parts(std::vector<std::int64_t> expected, const torch::TensorOptions& options);

  /// `kind`: allgather, gather, scatter or alltoall; `splits` as these take them.
  void start(const ProcessSet& set, OperationKind kind, const torch::Tensor& input, int root = 0,
             std::vector<std::int64_t> splits = {});

  const std::shared_ptr<Work>& work() const { return work_; }
  /// Returns one rank's part, once the operation has succeeded. Throws kMismatch, naming the call
  /// and the world's rank, if the number of elements differs from the expected one.
  torch::Tensor from(std::size_t rank, const char* call, const std::vector<int>& world_ranks) const;
  /// Copies each rank's part to its tensor of the list. Throws as from() does.
  void copy_to(const std::vector<torch::Tensor>& list, const char* call,
               const std::vector<int>& world_ranks) const;
  /// All received elements, in order of rank.
  const torch::Tensor& all() const { return *memory_; }

 private:
  std::vector<std::int64_t> expected_;
  torch::TensorOptions options_;
  std::shared_ptr<torch::Tensor> memory_;
  std::shared_ptr<Work> work_;
};

}  // namespace kolo::c10d_binding
