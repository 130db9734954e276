// kolo as a backend of torch's c10d. Code for c10d::Backend or c10d::ProcessGroup (c10d::Reducer, a
// trainer on ProcessGroupMPI or ProcessGroupGloo, …) then runs on kolo's collectives:
//
//   kolo::init(argc, argv);
//   auto group = c10::make_intrusive<kolo::ProcessGroupKolo>();
//   group->allreduce(tensors)->wait();
//
// Not part of <kolo/torch.h>. The CMake target is kolo::torch.
//
// - c10d's rule holds: all ranks of a group make the same calls on the group, in the same order.
//   Several groups on one process set share one such order.
// - On the CPU, calls whose parts have equal sizes use kolo's in-order submission. Ranks that are
//   out of step there get kMismatch with both calls, which ends the job's communication.
// - All other calls are negotiated: the n-th gather of a rank meets the n-th gather of the others.
//   If their types, roots or sizes do not fit, the call fails on all ranks with kMismatch, and
//   nothing else fails. Ranks that make calls of different kinds wait for each other until
//   KOLO_OPERATION_TIMEOUT.
// - A call may fail at once, for its arguments, on one rank alone. With in-order submission that
//   rank is then out of step. A negotiated call fails on all ranks with the rank and the reason,
//   and nothing else fails. A message fails the peer's message that would meet it, unless the peer
//   is no rank. A call whose tensors are all undefined counts as one on the device of the group's
//   last call.
// - Ranks, roots and peers are ranks of the group, as everywhere in c10d.
// - Tensors may have any strides; kolo copies tensors that are not contiguous. Elements of an
//   output must not share memory, as after expand().
// - CUDA tensors and streams follow the rules in <kolo/torch/functions.h>.
// - Errors: a call throws kolo::Exception if it can never work. Other failures come from wait() and
//   the future.
// - Threads: calls on one group come from one thread at a time, as for c10d's backends. Any thread
//   may wait for a work.
// - torch's profiler shows the calls as "kolo:all_reduce" and so on.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

namespace c10d_binding {
class FutureThread;
struct Started;
}  // namespace c10d_binding

/// The collectives of a process set as a c10d::Backend.
///
/// - Unsupported calls throw an error that says so: sparse tensors (use kolo::sparse_allreduce),
///   receives from any rank, bitwise reductions except on bool, allgather_coalesced (deprecated by
///   c10d), coalescing, split, merge and shrink.
/// - A work's future is complete before wait() returns. On the CPU it is also complete before
///   isCompleted() returns true.
/// - Callbacks of a future run on the thread that completes it: a thread of the group, or the first
///   thread that waits or tests.
/// - Within a callback, wait only for works, and for futures that the callback itself requested. Do
///   not wait for futures that were requested earlier.
class KOLO_API ProcessGroupKolo final : public c10d::Backend {
 public:
  /// Not collective; the set exists already. Throws kInvalidArgument if this rank is not in the
  /// set, and kShutdown before kolo::init().
  explicit ProcessGroupKolo(const ProcessSet& set = {});
  /// Waits for operations whose future somebody holds.
  ~ProcessGroupKolo() override;

  const std::string getBackendName() const override { return "kolo"; }
  /// Options whose timeout is that of setTimeout(), or 0 if it was not set.
  c10::intrusive_ptr<Options> getBackendOptions() override;
  /// Default deadline of wait(). Initially wait() waits as long as the operation may take
  /// (KOLO_OPERATION_TIMEOUT). A call's own `timeout` takes precedence. The operation goes on after
  /// a wait that timed out.
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// Number of calls so far.
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  /// Calls kolo::abort(), which ends the communication of the whole job.
  void abort() override;

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override;
  /// Reduces each tensor separately. The work is done when all are.
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceCoalescedOptions& options = {}) override;
  /// Leaves the tensors of ranks other than the root unchanged.
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options = {}) override;
  /// Sizes may differ between ranks.
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = {}) override;
  /// Also known as all_gather_single.
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options = {}) override;
  /// Sizes may differ between ranks.
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options = {}) override;
  /// Also known as gather_single. The root's output has one part for each rank, of the size of the
  /// root's input. kolo ignores the other ranks' output. It is no `override`, because older
  /// LibTorch has no such call.
  virtual c10::intrusive_ptr<c10d::Work> gather_into_tensor(
      at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options = {});
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
      const c10d::ReduceScatterOptions& options = {}) override;
  /// Also known as reduce_scatter_single.
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& options = {}) override;
  /// Also known as all_to_all_single. Splits count rows of the first dimension; without splits the
  /// rows are divided evenly.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_splits,
                                               std::vector<std::int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options = {}) override;
  /// Sizes may differ between ranks.
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options = {}) override;
  /// A barrier of the hosts. It does not wait for the work of devices.
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options = {}) override;

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

 private:
  /// World rank of a rank of the group.
  int world_rank(std::int64_t rank, const char* call) const;
  /// Whether a call with equal parts is in order. `tensor`: the first defined one of the call.
  bool in_order(const at::Tensor& tensor) const;
  c10::intrusive_ptr<c10d::Work> allreduce_each(const std::vector<at::Tensor>& tensors,
                                                const c10d::AllreduceOptions& options,
                                                c10d::OpType type);
  /// Which one of an input and its output has a part for each rank.
  enum class Whole { kInput, kOutput };
  using Start =
      std::function<std::shared_ptr<Work>(const at::Tensor& input, const at::Tensor& output)>;
  c10::intrusive_ptr<c10d::Work> start_each(const std::vector<at::Tensor>& outputs,
                                            const std::vector<at::Tensor>& inputs, Whole whole,
                                            const char* call, const c10d::ReduceOp& op,
                                            const Start& start, c10d::OpType type,
                                            std::chrono::milliseconds timeout);
  /// Arguments of gather() and scatter(): a tensor of each rank, and a list for all at the root.
  struct Rooted {
    const char* call;
    const char* own;  ///< "input"
    const char* all;  ///< "outputs"
  };
  /// The root's world rank, and its list; the list is empty elsewhere.
  std::pair<int, std::vector<at::Tensor>> check_rooted(const Rooted& names,
                                                       std::vector<at::Tensor>& own,
                                                       std::vector<std::vector<at::Tensor>>& lists,
                                                       std::int64_t root) const;
  c10::intrusive_ptr<c10d::Work> to_work(c10d_binding::Started started, c10d::OpType type,
                                         std::chrono::milliseconds timeout);

  ProcessSet set_;
  std::vector<int> ranks_;  ///< world ranks, indexed by rank of the group
  std::chrono::milliseconds timeout_ = c10d::kUnsetTimeout;
  std::atomic<std::uint64_t> sequence_ = 0;
  at::Device device_ = at::kCPU;  ///< the latest call's
  std::unique_ptr<c10d_binding::FutureThread> futures_;
};

/// A c10d::ProcessGroup for code that takes one. A ProcessGroupKolo serves its tensors on the CPU
/// and on CUDA devices. Throws what the constructor of ProcessGroupKolo throws.
KOLO_API c10::intrusive_ptr<c10d::ProcessGroup> process_group(const ProcessSet& set = {});

/// Wraps one of torch's stores (TCPStore, FileStore, …) for InitOptions::store.
KOLO_API std::shared_ptr<KeyValueStore> key_value_store(c10::intrusive_ptr<c10d::Store> store);

}  // namespace kolo
