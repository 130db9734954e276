// Starting kolo's operations on the tensors of a c10d call, or refusing it. User threads, those of
// one group one at a time.
#pragma once

#include "bindings/c10d/work.h"
#include "bindings/core/refusals.h"
#include "bindings/torch/device_stream.h"

#include <kolo/kolo.h>
#include <kolo/torch/objects.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kolo::c10d_binding {

/// A call whose operations have an order, those on the host.
struct Called {
  OperationKind kind;
  /// What each of its operations reads; undefined where that is not known. Of any types and
  /// strides.
  std::vector<torch::Tensor> inputs;
};
/// Makes up on this rank for the operations of a call that fails here at once: ranks where it does
/// not are told, so that none of the calls after it meets them.
void call_refused(const ProcessSet& set, const Called& called, const std::string& why);

/// What `check` returns, which looks at all arguments of a call before it begins. What it throws
/// becomes a refusal.
template <class Check>
auto checked(const ProcessSet& set, const Called& called, Check&& check) {
  try {
    return check();
  } catch (const std::exception& error) {
    call_refused(set, called, reason_of(error));
    throw;
  }
}

/// kolo's operation of this name; kUnsupported for what it has none for on such tensors. Asked of
/// all tensors of a call before the first one is begun.
ReduceOp reduce_op(const c10d::ReduceOp& op, const torch::Tensor& tensor, const char* call);
/// The input of a reduction by `op`: PREMUL_SUM multiplies it by this rank's factor.
torch::Tensor scaled(const torch::Tensor& input, const c10d::ReduceOp& op);

/// An output of any strides, and the contiguous memory that takes its place meanwhile.
class Output {
 public:
  /// With its elements, if the operation reads them.
  explicit Output(torch::Tensor tensor, bool with_elements = false);
  const torch::Tensor& memory() const { return memory_; }
  /// Copies what has come, if it has come elsewhere.
  void finish() const;

 private:
  torch::Tensor tensor_;
  torch::Tensor memory_;
};

/// finish() of all.
std::function<void()> finishing(std::vector<Output> outputs);

// Calls whose parts are equal on all ranks: on the host through the ordered door. Tensors are
// contiguous, and of one type and device.
std::shared_ptr<Work> start_allreduce(const ProcessSet& set, const torch::Tensor& input,
                                      const torch::Tensor& output, ReduceOp op);
std::shared_ptr<Work> start_broadcast(const ProcessSet& set, const torch::Tensor& tensor, int root);
/// The output has the ranks' inputs end to end.
std::shared_ptr<Work> start_allgather(const ProcessSet& set, const torch::Tensor& input,
                                      const torch::Tensor& output);
/// The input has a part for each rank, end to end.
std::shared_ptr<Work> start_reduce_scatter(const ProcessSet& set, const torch::Tensor& input,
                                           const torch::Tensor& output, ReduceOp op);
std::shared_ptr<Work> start_barrier(const ProcessSet& set);

// Messages; `tag` is 0 or more.
std::shared_ptr<Work> start_send(const ProcessSet& set, const torch::Tensor& tensor, int to,
                                 int tag);
std::shared_ptr<Work> start_recv(const ProcessSet& set, const torch::Tensor& tensor, int from,
                                 int tag);

/// What comes from the ranks in parts whose sizes the caller says beforehand: flat memory of all of
/// them, end to end, and the operation that fills it.
class Parts {
 public:
  /// Elements from each rank of the group.
  Parts(std::vector<std::int64_t> expected, const torch::TensorOptions& options);

  void start_allgather(const ProcessSet& set, const torch::Tensor& input);
  void start_gather(const ProcessSet& set, const torch::Tensor& input, int root);
  void start_scatter(const ProcessSet& set, const torch::Tensor& input, int root,
                     const std::vector<std::int64_t>& splits);
  void start_alltoall(const ProcessSet& set, const torch::Tensor& input,
                      const std::vector<std::int64_t>& splits);

  const std::shared_ptr<Work>& work() const { return work_; }
  /// Once the operation has succeeded: the part of one rank. Throws kMismatch, if another number of
  /// elements came, which names the call and the world's rank.
  torch::Tensor from(std::size_t rank, const char* call, const std::vector<int>& world_ranks) const;
  /// Each rank's part to its tensor of the list, as from().
  void copy_to(const std::vector<torch::Tensor>& list, const char* call,
               const std::vector<int>& world_ranks) const;
  /// All that came, in order of rank.
  const torch::Tensor& all() const { return *memory_; }

 private:
  CollectiveOptions options(const ProcessSet& set, const torch::Tensor& input) const;
  // Of the size that comes, though it may not be the one that is expected: else this rank alone
  // would fail, and say that it has no memory.
  Allocator allocator() const { return allocator_of(memory_, options_); }

  std::vector<std::int64_t> expected_;
  torch::TensorOptions options_;
  std::shared_ptr<torch::Tensor> memory_;
  std::shared_ptr<Work> work_;
};

}  // namespace kolo::c10d_binding
