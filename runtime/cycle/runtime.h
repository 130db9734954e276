// Runtime: owns everything of one rank; the composition root. Member order is construction order.
// Any thread may call it. Tests run several in one process. It has a method for each kind of call.
#pragma once

#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/cycle/cycle.h"
#include "runtime/cycle/driver.h"
#include "runtime/cycle/group_registry.h"
#include "runtime/cycle/ordered_arguments.h"
#include "runtime/device/threaded_device.h"
#include "runtime/memory/device_window.h"
#include "runtime/memory/host_window.h"
#include "runtime/observe/flight_recorder.h"
#include "runtime/observe/start_up_times.h"
#include "runtime/observe/timeline.h"
#include "runtime/planning/exchange_fit.h"
#include "runtime/submission/finite_check.h"
#include "runtime/tuning/link_cache.h"
#include "transport/transport.h"

#include <kolo/config.h>
#include <kolo/info.h>
#include <kolo/work.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kolo {

struct RuntimeParts {
  Config config;
  Log log;
  std::unique_ptr<Transport> transport;
  /// The memory of windows.
  ReservedMemory reserved_memory = {};
  /// Process sets that exist from the start, the same on every rank; the first becomes number 1.
  std::vector<std::vector<int>> process_sets = {};
  /// Further settings that must be the same on all ranks, as "backend=kolo".
  std::vector<std::string> agreed = {};
  /// Opens this rank's accelerator, once its place in the world is known. Null, with the reason, if
  /// the rank has none.
  std::function<Result<std::unique_ptr<Accelerator>>(const World& world, std::string& reason)>
      open_accelerator = {};
  /// Opens NCCL, for KOLO_OPERATIONS=nccl.
  std::function<Result<std::shared_ptr<NcclApi>>()> open_nccl = {};
  /// Measure which way all-reduces inside the host are fastest, and note it here; read and written
  /// by start() alone. Null: constants choose.
  MeasuredExchange* measured_exchange = nullptr;
  /// What init has done before Runtime::start().
  StartUpTimes times = {};
};

class Runtime {
 public:
  /// Collective: the ranks of `bootstrap` meet, connect and start. Uses the bootstrap only during
  /// the call.
  static Result<std::unique_ptr<Runtime>> start(Bootstrap& bootstrap, RuntimeParts parts);
  ~Runtime();

  const World& world() const { return groups_.world().communicator().world(); }

  /// Negotiated submission. A call with invalid arguments fails through its Work, on every rank.
  Result<std::shared_ptr<Work>> submit(Submission&& submission);
  /// Several operations that complete together or not at all. Either all have names or none has.
  /// Returns one Work per operation, each with its own status.
  Result<std::vector<std::shared_ptr<Work>>> submit_group(std::vector<Submission> submissions,
                                                          const std::string& group_name);
  /// In-order submission; ignores name and absent. kInvalidArgument for invalid arguments.
  Result<std::shared_ptr<Work>> submit_ordered(Submission submission);

  /// A blocking in-order call. kInvalidArgument for invalid arguments.
  Status call_ordered(const OrderedArguments& arguments);
  /// As call_ordered(), for a call for which Driver::call() has just returned false.
  Status queue_ordered(const OrderedArguments& arguments);
  /// As call_ordered(), but waits no longer than a short spin: the Work of the call.
  Result<std::shared_ptr<Work>> start_ordered(const OrderedArguments& arguments,
                                              const KeepAlive& keep_alive);
  /// The driver whose call() carries small calls, for callers that keep it; null if it carries no
  /// all-reduce.
  std::shared_ptr<Driver> driver_of_small_calls() const;
  Status allreduce_ordered(const std::byte* input, std::byte* output, std::int64_t count,
                           DataType type, ReduceOp op);

  /// One message to or from another rank (kSend, kReceive; signature.root is that rank).
  /// kInvalidArgument for arguments that are invalid on this rank alone.
  Result<std::shared_ptr<Work>> submit_message(Submission submission);
  /// TensorTable::count_failed_unnamed() of the process set.
  void count_failed_unnamed(OperationKind kind, std::uint32_t set);

  /// Collective over the world: adds a process set of these world ranks. The Work's value is its
  /// number. `by_its_ranks`: collective over the set's ranks alone, the others learn of it; there
  /// may be another set of these ranks.
  Result<std::shared_ptr<Work>> add_process_set(std::vector<int> ranks, bool by_its_ranks = false);
  /// Collective over the world. No rank may have operations in flight on the set.
  /// `by_its_ranks`: as above.
  Result<std::shared_ptr<Work>> remove_process_set(std::uint32_t id, bool by_its_ranks = false);
  /// World ranks of a process set, ascending; kInvalidArgument if there is no such set.
  Result<std::vector<int>> ranks_of(std::uint32_t id);
  std::vector<std::uint32_t> process_sets() const { return groups_.ids(); }
  /// Joins of a process set that have ended on all its ranks, as far as this rank knows.
  /// kInvalidArgument if there is no such set.
  Result<std::uint64_t> joins(std::uint32_t id) {
    return groups_.with(id, [](Group& group) -> Result<std::uint64_t> { return group.joins(); });
  }

  /// Zeroed memory that the ranks of this host have mapped, if they share any (HostWindow); else
  /// private memory. May outlive the runtime. kOutOfMemory.
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) const;

  /// As allocate(), but null where the memory would be private. Also null, logged once, where the
  /// arena has too little left.
  Result<std::shared_ptr<std::byte>> allocate_if_shared(std::size_t bytes) const;

  /// Zeroed memory of this rank's device that the ranks of this host have mapped (DeviceArena).
  /// Null where there is none; also null, logged once, where too little is left. May outlive the
  /// runtime. Waits for the device. kDevice.
  Result<std::shared_ptr<std::byte>> allocate_on_device(std::size_t bytes) const;

  /// Bytes of the memory that ranks of this host share and that is in use: of allocate(), and of
  /// allocate_on_device().
  std::size_t arena_bytes_used() const;
  std::size_t device_arena_bytes_used() const;

  /// This rank's accelerator; null if it has none. Any thread.
  Accelerator* accelerator() const { return devices_.accelerator(); }

  /// Describes what this rank runs on. Takes the progress token for a moment.
  RuntimeInfo info() const;

  /// All-reduces of the world that begin from now on go as with this KOLO_ALGORITHM; empty: as
  /// since the start. For measurements. Every rank calls it between the same calls. Precondition:
  /// this rank has no call under way.
  void force_algorithm(const std::string& algorithm);

  /// Begins a timeline of this rank, as KOLO_TIMELINE does from the start on. It has what begins
  /// from now on. kInvalidArgument if the rank keeps one already, or the path is not suitable.
  Status start_timeline(const std::string& path);
  /// Completes the file. kInvalidArgument if there is no timeline; kInternal if the file is not
  /// complete.
  Status stop_timeline();

  /// Fails all present and future operations on all ranks, with this rank's number and `reason`.
  void abort(const std::string& reason);
  /// As abort(), for the calls of one process set: those of other sets go on. The set stays until
  /// shut_down(), and so does the memory of its running operations. No effect if there is no such
  /// set, or this rank is not in it.
  void abort_process_set(std::uint32_t id, const std::string& reason);

  /// Ends this rank's part; operations under way fail with kShutdown. Further calls do nothing.
  /// False if a thread still drives at `until`: then nothing is ended.
  bool shut_down(
      std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());
  /// The failure that aborted this rank, if any; an orderly shutdown is not a failure.
  bool failed() const { return !failure().ok(); }
  Status failure() const;
  const Log& log() const { return log_; }
  /// FlightRecorder::path().
  const std::string& recording() const { return flight_recorder_.path(); }
  /// No call of the world works any more: it has failed, or its process set was aborted.
  bool is_over() const { return failed() || groups_.world().aborted(); }
  /// Counters of a process set's negotiation. Takes the progress token for a moment.
  Controller::Counters negotiation_counters(std::uint32_t process_set = 0);

 private:
  Runtime(World world, RuntimeParts parts, std::unique_ptr<Timeline> timeline);
  Status learn_links(Bootstrap& bootstrap, Deadline deadline);
  /// Called when init fails on this rank; returns the reason to report.
  Error give_up(Bootstrap& bootstrap, Error why);
  using OpenAccelerator = decltype(RuntimeParts::open_accelerator);
  Status connect(Bootstrap& bootstrap, std::vector<Peer> peers, const OpenAccelerator& open);
  /// Collective, once the accelerators are open; only for KOLO_OPERATIONS=nccl.
  using OpenNccl = decltype(RuntimeParts::open_nccl);
  Status connect_nccl(Bootstrap& bootstrap, const OpenNccl& open);
  /// Collective: finds where the time axis of timelines begins. `clock_of_0`: the clock of rank 0.
  Status compare_clocks(Bootstrap& bootstrap, std::int64_t clock_of_0);
  void start_flight_recorder();
  void log_start(const Bootstrap& bootstrap) const;
  Status add_initial_process_sets(const std::vector<std::vector<int>>& sets);
  Result<std::shared_ptr<Work>> submit_in_order(Submission submission);
  /// Counts a caller out of a process set.
  struct Leave {
    void operator()(Group* group) const;
  };
  class Trial;
  /// Collective over the world, before its first call: measures all-reduces inside the host by each
  /// way, at most for about 40 ms, and sets from which size which way is taken. Where rank 0 has
  /// measured as many ranks before, all take its times.
  Status choose_exchange(Bootstrap& bootstrap, MeasuredExchange& measured, Deadline deadline);
  /// The process set of an in-order call, which cannot be removed meanwhile; null for the world.
  using Within = std::unique_ptr<Group, Leave>;
  Result<Within> enter_set_of(const OrderedArguments& call);
  int size_of_set(const Group* within) const {
    return within == nullptr ? world().size() : within->communicator().size();
  }
  Result<std::shared_ptr<Work>> enqueue_ordered(const OrderedArguments& call, const Group* within,
                                                std::shared_ptr<const void> keep_alive);
  /// Turns kOutOfMemory of an arena into null, and logs it once.
  Result<std::shared_ptr<std::byte>> null_if_full(Result<std::shared_ptr<std::byte>> memory,
                                                  std::string_view variable,
                                                  std::atomic<bool>& told) const;
  Result<EntryPtr> make_entry(Submission&& submission);
  /// For an entry with a stream.
  Status prepare_on_device(Entry& entry) const;
  Status submit_entries(std::span<EntryPtr> entries, std::uint32_t process_set, bool will_wait);
  Status check_member(const Group& group, const Entry& entry) const;
  /// KOLO_CHECK_FINITE: an in-order call of values that are not finite ends the job.
  Status check_finite(const OrderedArguments& call, const Group* within);

  Config config_;  ///< only force_algorithm() changes it
  const Log log_;
  std::unique_ptr<Transport> transport_;
  const std::unique_ptr<Timeline> timeline_;
  TimelineOrigin timeline_origin_;
  std::mutex timeline_mutex_;  ///< one thread starts or stops it
  FlightRecorder flight_recorder_;
  const ThreadedDevice device_;
  HostWindow window_;
  DeviceWindow devices_;  ///< its unmap barrier uses the control segments of the window
  mutable std::atomic<bool> told_of_full_arena_ = false;
  mutable std::atomic<bool> told_of_full_device_arena_ = false;
  NcclSite nccl_;  ///< outlives the groups' communicators
  FiniteCheck finite_check_;
  Waker waker_;
  ScheduleCache schedules_;
  Arena arena_;
  const RankServices services_;
  GroupRegistry groups_;
  LinkCosts links_;
  LinkCache link_cache_;  ///< for the transport's state before links were opened
  std::vector<ExchangeTimes> exchange_times_;  ///< by choose_exchange()
  /// What force_algorithm() has replaced.
  struct Chosen {
    ExchangeLimits limits;
    std::string algorithm;
  };
  std::optional<Chosen> chosen_;
  StartUpTimes start_up_;
  std::string rendezvous_;
  Cycle cycle_;
  std::shared_ptr<Driver> driver_;
};

}  // namespace kolo
