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
// - A call whose options have `asyncOp` off, as those of Python without async_op=True, waits itself
//   and returns null, as ProcessGroupNCCL's does. It returns a work all the same while a hook on
//   completion is registered, which knows a call by its work, and up to endCoalescing().
// - Ranks, roots and peers are ranks of the group, as everywhere in c10d.
// - Tensors may have any strides; kolo copies tensors that are not contiguous. Elements of an
//   output must not share memory, as after expand().
// - CUDA tensors and streams follow the rules in <kolo/torch/functions.h>.
// - Errors: a call throws kolo::Exception if it can never work. Other failures come from wait() and
//   the future.
// - Threads: calls on one group come from one thread at a time, as for c10d's backends. Any thread
//   may wait for a work.
// - torch's profiler shows the calls as "kolo:all_reduce" and so on.
// - A process has one world, and groups are process sets of it. So the ways to go on differ in what
//   they end: abort() one group, shrink() none while all ranks live, reconfigure() the world with
//   all its groups.
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
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kolo {

namespace c10d_binding {
class FutureThread;
class GroupWork;
struct GroupHooks;
struct Started;
}  // namespace c10d_binding

/// The collectives of a process set as a c10d::Backend.
///
/// - Unsupported calls throw an error that says so: bitwise reductions except of integers and bool,
///   merge, and sparse tensors except in allreduce.
/// - The bits of BAND, BOR and BXOR travel as a byte each.
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
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  /// With `enable_reconfigure`: a group without ranks until reconfigure(); kolo::init() is not
  /// needed before. Throws kInvalidArgument without it.
  explicit ProcessGroupKolo(const c10::intrusive_ptr<Options>& options);
#endif
  /// A group as torch.distributed describes it to what creates a backend (register_backend).
  struct Description {
    c10::intrusive_ptr<c10d::Store> store = {};  ///< all of its keys are this group's
    int rank = 0;                                ///< in the group
    int size = 1;
    /// torch's global ranks of the members, ascending; empty: all ranks, the default group.
    std::vector<std::int64_t> global_ranks = {};
    /// Default deadline of wait(), and of each phase of a world's start. c10d's default of half an
    /// hour counts as unset.
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    /// CUDA device of this rank, as InitOptions::device. In a world that is there it must be its
    /// device.
    std::optional<int> device = {};
  };
  /// The group of this description. Collective over its members alone.
  /// - If kolo is not initialised, these ranks become its world, over the store, and shutdown() of
  ///   this group ends the world.
  /// - Otherwise the members of a default group must be the world, and those of another group are
  ///   a new process set of it.
  /// Throws kInvalidArgument for ranks that do not fit, kUnsupported for members outside the world,
  /// and what kolo::init() throws.
  static c10::intrusive_ptr<ProcessGroupKolo> create(const Description& description);
  /// Waits for operations whose future somebody holds.
  ~ProcessGroupKolo() override;

  const std::string getBackendName() const override { return "kolo"; }
  /// Options whose timeout is that of setTimeout(), or 0 if it was not set.
  c10::intrusive_ptr<Options> getBackendOptions() override;
  /// Default deadline of wait(). Initially wait() waits as long as the operation may take
  /// (KOLO_OPERATION_TIMEOUT). A call's own `timeout` takes precedence. The operation goes on after
  /// a wait that timed out.
  void setTimeout(std::chrono::milliseconds timeout) override;
  /// Adds to the deadlines of wait() that the works from here on have, until the first of them is
  /// done. Without a deadline nothing changes. It is no `override`, because older LibTorch has no
  /// such call.
  virtual void addEphemeralTimeout(const std::chrono::milliseconds& timeout);
  /// Number of calls so far.
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  /// False before reconfigure(), if the group waits for it.
  bool isInitialized() override { return size_ > 0; }
  /// COMM_ERROR once the world's communication has failed.
  c10d::ErrorType getError() override;

  /// Ends this group alone: its pending calls and later ones fail with kAborted, on all its ranks,
  /// with this rank's number. Calls of other groups go on, unless they share the process set.
  /// - The tensors of calls that had begun stay in memory until kolo::shutdown(), since peers may
  ///   still write there. Memory that kolo's own calls on the same process set were given must
  ///   stay, too.
  /// - The process set cannot be removed. A group on all ranks ends the calls of process set 0,
  ///   those that add and remove process sets included.
  void abort() override;

  /// Ends the world that create() has begun for this group. The process set that create() or
  /// split() has added goes once all its ranks have called this. No effect on another group.
  void shutdown() override;

  bool supportsSplitting() const override { return true; }
  /// A new group of these ranks of this group, which are ascending. Collective over them alone; no
  /// other rank calls it. `options` gives the new group's timeout; else it has this one's.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;

  bool supportsShrinking() const override { return true; }
  /// A new group of the others, in their order. Collective over these alone; they give the same
  /// ranks. `shrink_flags`: 0, or 1 (NCCL_SHRINK_ABORT) to abort() this group first.
  /// `opts_override` gives the new group's timeout; else it has this one's.
  /// - While all ranks of the world live, the new group is a process set. This group and all others
  ///   stay as they are, on the excluded ranks, too.
  /// - After a failure, or the abort() of a group on all ranks, the ranks that stay leave the world
  ///   and make a new one over InitOptions::store, under new keys. All groups of the old world end.
  ///   Throws kUnsupported if this group is not all ranks of the world, or there is no such store:
  ///   reconfigure() needs neither.
  /// Throws kInvalidArgument for no ranks, a rank twice, no rank of the group, and this rank
  /// itself.
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags = 0,
      const c10::intrusive_ptr<Options>& opts_override = nullptr) override;

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return true; }
  /// This process, for reconfigure() on others: the same text for all groups, as long as it lives.
  /// It holds an address of KOLO_INTERFACE, else of the first network, and a port that stays taken.
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  /// Leaves the world, if there is one, with all groups in it, and makes a new one of the processes
  /// with these handles, whatever has started them; this group is all its ranks. A list gives the
  /// ranks by position; a set, by the order of its texts.
  /// - Collective over these processes, which give the same handles and the same `uuid`, one that
  ///   differs from the last. Returns when all have met; the Work is done.
  /// - Others of the old world that call this rank there fail with kPeerLost.
  /// - `timeout` bounds each phase, as KOLO_INIT_TIMEOUT does without it. Hints are ignored.
  /// Throws kInvalidArgument for what is no handle, handles that are equal or without this
  /// process's, and an old `uuid`; nothing has happened then. Otherwise throws what kolo::init()
  /// throws, and the group waits for reconfigure() again.
  c10::intrusive_ptr<c10d::Work> reconfigure(const c10d::ReconfigureOptions& options) override;
#endif

#ifdef C10D_BACKEND_HAS_HOOKS
  /// Each work that begins after this calls the hook once when it has succeeded, on the thread that
  /// completes it; on CUDA tensors, once all of its work is enqueued. The hook gets no duration. It
  /// must return soon, and must neither throw nor call kolo.
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t hook_id, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(std::int64_t hook_id) override;
  /// Called by abort(), before all else, and once for each work that has failed, on the first
  /// thread that waits or tests. The hook must not call this group.
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(std::int64_t hook_id, c10d::AbortHook hook) override;
  void unregisterAbortHook(std::int64_t hook_id) override;
#endif

  /// True in the world in which the group was made. `device_index` may be any: allocateTensor()
  /// gives ordinary memory where there is no other.
  bool supportsTensorAlloc(c10::DeviceIndex device_index) override;
  /// kolo::shared_zeros() of this many elements: between ranks of one host, in-place all-reduces on
  /// it copy nothing. Throws what that throws. Not collective.
  at::Tensor allocateTensor(long size,
                            at::TensorOptions options = {}) override;  // NOLINT(google-runtime-int)

  /// Bytes of this process's memory that ranks of a host share, for all groups together, by name:
  /// "window_bytes" for schedules; "arena_bytes" of address space for kolo::allocate(), of which
  /// "arena_bytes_used"; "device_arena_bytes" for kolo::allocate_on_device(), of which
  /// "device_arena_bytes_used". It is no `override`, because older LibTorch has no such call.
  virtual std::unordered_map<std::string, std::uint64_t> getMemoryStats();

  /// The works of the calls from here to endCoalescing(), which start at once, become one.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override;
  /// A sum of sparse COO tensors of one size, whose numbers of elements may differ; the result is
  /// coalesced. allreduce() of a sparse tensor is this.
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(
      std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options = {}) override;
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
  /// An allgather of each input: `outputs` has, for each rank, an output of each input.
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(
      std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options = {}) override;
  /// Also known as all_gather_single.
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options = {}) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
      const c10d::AllgatherOptions& options = {}) override;
  /// Sizes may differ between ranks, which only the root sees, so this call is always negotiated.
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options = {}) override;
  /// Also known as gather_single. The root's output has one part for each rank, of the size of the
  /// root's input. kolo ignores the other ranks' output. It is no `override`, because older
  /// LibTorch has no such call.
  virtual c10::intrusive_ptr<c10d::Work> gather_into_tensor(
      at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options = {});
  /// As gather().
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
  /// A barrier over the store, whose error on rank 0 names the ranks that have not come within
  /// `options.timeout`: the first, or all of them. The others then fail, too. Throws kUnsupported
  /// without a store (create(), split()).
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks = false) override;

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  /// From whichever rank sends under this tag first; the work's sourceRank() is that one.
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

 private:
  /// The process set; throws kShutdown if the group has none in the present world.
  const ProcessSet& set() const;
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
                                            std::chrono::milliseconds timeout, bool is_async);
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
  /// Null for a blocking call, which has ended then.
  c10::intrusive_ptr<c10d::Work> to_work(c10d_binding::Started started, c10d::OpType type,
                                         std::chrono::milliseconds timeout, bool is_async = true);
  /// By what addEphemeralTimeout() extends the deadline of a new work, which has these operations.
  std::chrono::milliseconds extension_of(c10::ArrayRef<std::shared_ptr<Work>> operations);

  ProcessSet set_;
  c10::intrusive_ptr<c10d::Store> store_;  ///< null: none was given
  bool owns_world_ = false;                ///< shutdown() ends it
  bool owns_set_ = false;                  ///< shutdown() removes it
  std::uint64_t monitored_barriers_ = 0;
  /// Between startCoalescing() and endCoalescing().
  std::optional<std::vector<c10::intrusive_ptr<c10d_binding::GroupWork>>> coalesced_;
  std::uint64_t world_ = 0;            ///< number of the world in which the set is; 0: none
  bool begins_without_world_ = false;  ///< enable_reconfigure
  std::optional<std::int64_t> uuid_;   ///< the last reconfigure()'s
  std::vector<int> ranks_;             ///< world ranks, indexed by rank of the group
  std::chrono::milliseconds timeout_ = c10d::kUnsetTimeout;
  struct Extension {
    std::chrono::milliseconds time;
    std::optional<std::vector<std::shared_ptr<Work>>> first = {};  ///< operations of the first work
  };
  std::vector<Extension> extensions_;  ///< by addEphemeralTimeout()
  std::atomic<std::uint64_t> sequence_ = 0;
  at::Device device_ = at::kCPU;  ///< the latest call's
  std::shared_ptr<c10d_binding::GroupHooks> hooks_;
  std::unique_ptr<c10d_binding::FutureThread> futures_;
};

/// A c10d::ProcessGroup for code that takes one. A ProcessGroupKolo serves its tensors on the CPU
/// and on CUDA devices. Throws what the constructor of ProcessGroupKolo throws.
KOLO_API c10::intrusive_ptr<c10d::ProcessGroup> process_group(const ProcessSet& set = {});
/// Likewise, of a group that exists.
KOLO_API c10::intrusive_ptr<c10d::ProcessGroup> process_group(
    const c10::intrusive_ptr<ProcessGroupKolo>& group);

/// Wraps one of torch's stores (TCPStore, FileStore, …) for InitOptions::store.
KOLO_API std::shared_ptr<KeyValueStore> key_value_store(c10::intrusive_ptr<c10d::Store> store);

}  // namespace kolo
