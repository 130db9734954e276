// kolo as a backend of torch's c10d, so that what is written for c10d::Backend or
// c10d::ProcessGroup (c10d::Reducer, a trainer on ProcessGroupMPI or ProcessGroupGloo, …) runs on
// kolo's collectives:
//
//   kolo::init(argc, argv);
//   auto group = c10::make_intrusive<kolo::ProcessGroupKolo>();
//   group->allreduce(tensors)->wait();
//
// Not part of <kolo/torch.h>. In CMake it is in kolo::torch.
//
// c10d's rule holds: all ranks of a group make the same calls on it in the same order. Groups on
// one process set are one group in that. On the CPU, calls whose parts are equal go through kolo's
// ordered door, where ranks that are out of step get kMismatch with both calls, which ends the
// job's communication; all else is kolo's unnamed operations, where they wait for each other until
// KOLO_OPERATION_TIMEOUT. A call that fails at once on one rank alone, for its arguments, leaves
// the ranks out of step at the ordered door; elsewhere it was none on that rank, so end it by
// abort(). torch's profiler sees the calls as "kolo:all_reduce" and the like.
//
// Ranks, roots and peers are the group's, as everywhere in c10d. Tensors may have any strides, but
// outputs none by which elements share memory (expand()); what is not contiguous is copied. CUDA
// tensors and streams as in <kolo/torch/functions.h>.
//
// Errors: kolo::Exception, from the call for what can never work, else from wait() and in the
// future. Threads: as c10d's backends, calls on one group come from one thread at a time; works may
// be waited for anywhere.
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
#include <vector>

namespace kolo {

namespace c10d_binding {
class FutureThread;
struct Started;
}  // namespace c10d_binding

/// The collectives of a process set as a c10d::Backend. What it lacks says so when it is called:
/// sparse tensors (kolo::sparse_allreduce has them), messages from anybody, bitwise reductions but
/// on bool, allgather_coalesced (c10d has deprecated it), coalescing, split, merge and shrink.
///
/// A work's future is complete before wait() returns, and before isCompleted() is true on the CPU.
/// Callbacks of futures run on the thread that completes them: one of the group's, or one that
/// waits or looks first. Within one, wait for works and for futures that are asked for there, not
/// for futures that were asked for before.
class KOLO_API ProcessGroupKolo final : public c10d::Backend {
 public:
  /// Not collective; the set is there already. Throws kInvalidArgument if this rank is none of the
  /// set's, and kShutdown before kolo::init().
  explicit ProcessGroupKolo(const ProcessSet& set = {});
  /// Waits for operations whose future somebody has.
  ~ProcessGroupKolo() override;

  const std::string getBackendName() const override { return "kolo"; }
  /// Its timeout is that of setTimeout(), 0 before.
  c10::intrusive_ptr<Options> getBackendOptions() override;
  /// How long wait() waits by default; at first, as long as the operation may take
  /// (KOLO_OPERATION_TIMEOUT). A call's own `timeout` comes before this one. The operation goes on
  /// after a wait that was in vain.
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// Calls so far.
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  /// kolo::abort(): ends the communication of the whole job.
  void abort() override;

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override;
  /// All tensors are reduced on their own; the work is done when all are.
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceCoalescedOptions& options = {}) override;
  /// The other ranks' tensors stay as they are.
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options = {}) override;
  /// Sizes may differ from rank to rank.
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = {}) override;
  /// all_gather_single is the same.
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options = {}) override;
  /// Sizes may differ from rank to rank.
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options = {}) override;
  /// gather_single is the same. The root's output has a part for each rank, of the size that its
  /// own input has; the others' is not looked at. No `override`, for older LibTorch has no such
  /// call.
  virtual c10::intrusive_ptr<c10d::Work> gather_into_tensor(
      at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options = {});
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
      const c10d::ReduceScatterOptions& options = {}) override;
  /// reduce_scatter_single is the same.
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::ReduceScatterOptions& options = {}) override;
  /// all_to_all_single is the same. Splits are rows of the first dimension; none: evenly.
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_splits,
                                               std::vector<std::int64_t>& input_splits,
                                               const c10d::AllToAllOptions& options = {}) override;
  /// Sizes may differ from rank to rank.
  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions& options = {}) override;
  /// Of the hosts: what devices still do is not waited for.
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options = {}) override;

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

 private:
  /// The world's number of the group's rank.
  int world_rank(std::int64_t rank, const char* call) const;
  c10::intrusive_ptr<c10d::Work> allreduce_each(const std::vector<at::Tensor>& tensors,
                                                const c10d::AllreduceOptions& options,
                                                c10d::OpType type);
  /// Which of an input and its output has a part for each rank.
  enum class Whole { kInput, kOutput };
  using Start =
      std::function<std::shared_ptr<Work>(const at::Tensor& input, const at::Tensor& output)>;
  c10::intrusive_ptr<c10d::Work> start_each(const std::vector<at::Tensor>& outputs,
                                            const std::vector<at::Tensor>& inputs, Whole whole,
                                            const char* call, const c10d::ReduceOp& op,
                                            const Start& start, c10d::OpType type,
                                            std::chrono::milliseconds timeout);
  /// One tensor for each rank at the root; none elsewhere.
  std::vector<at::Tensor> list_at_root(std::vector<std::vector<at::Tensor>>& lists,
                                       std::int64_t root, const char* call, const char* what) const;
  c10::intrusive_ptr<c10d::Work> hand_out(c10d_binding::Started started, c10d::OpType type,
                                          std::chrono::milliseconds timeout);

  ProcessSet set_;
  std::vector<int> ranks_;  ///< of the world, by rank of the group
  std::chrono::milliseconds timeout_ = c10d::kUnsetTimeout;
  std::atomic<std::uint64_t> sequence_ = 0;
  std::unique_ptr<c10d_binding::FutureThread> futures_;
};

/// A c10d::ProcessGroup whose tensors on the CPU and on CUDA devices go through a ProcessGroupKolo,
/// for what takes a ProcessGroup. Throws as that.
KOLO_API c10::intrusive_ptr<c10d::ProcessGroup> process_group(const ProcessSet& set = {});

/// torch's store (TCPStore, FileStore, …) for InitOptions::store.
KOLO_API std::shared_ptr<KeyValueStore> key_value_store(c10::intrusive_ptr<c10d::Store> store);

}  // namespace kolo
