// Runtime: owns everything of one rank; the composition root. Member order is construction order.
// Any thread may call it; N of them live side by side in one process (tests).
#pragma once

#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/communicator/device_window.h"
#include "runtime/communicator/host_window.h"
#include "runtime/cycle.h"
#include "runtime/device/threaded_device.h"
#include "runtime/driver.h"
#include "runtime/group.h"
#include "runtime/observe/timeline.h"
#include "runtime/ordered_arguments.h"
#include "runtime/tuning/link_cache.h"
#include "transport/transport.h"

#include <kolo/config.h>
#include <kolo/info.h>
#include <kolo/work.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kolo {

struct RuntimeParts {
  Config config;
  Log log;
  std::unique_ptr<Transport> transport;
  /// Process sets from the start, the same on every rank; the first becomes number 1.
  std::vector<std::vector<int>> process_sets = {};
  /// What else all ranks must agree on, as "backend=kolo".
  std::vector<std::string> agreed = {};
  /// Opens this rank's accelerator, once its place in the world is known; null, with the reason:
  /// it has none.
  std::function<Result<std::unique_ptr<Accelerator>>(const World& world, std::string& reason)>
      open_accelerator = {};
  /// KOLO_OPERATIONS=nccl: opens NCCL.
  std::function<Result<std::shared_ptr<NcclApi>>()> open_nccl = {};
};

/// One call of a user, before it has its name and its Work.
struct Submission {
  std::string name;     ///< empty: by call order
  Signature signature;  ///< with the shape of this rank's whole input
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  bool absent = false;
  Splits splits = {};          ///< of an alltoall, and at a scatter's root; empty: evenly
  std::string complaint = {};  ///< as Entry::complaint
  Allocate allocate = {};      ///< the output's memory, where the caller does not know its size
  std::shared_ptr<const void> keep_alive;
  bool will_wait = false;  ///< the caller waits for the Work at once
  std::uint32_t process_set = 0;
  std::uint32_t tag = 0;                  ///< of a message
  std::uint64_t step = 0;                 ///< as Entry::step
  std::optional<CudaStream> stream = {};  ///< memory of the accelerator, ready after it
};

class Runtime {
 public:
  /// Collective: the ranks of `bootstrap` meet, connect and start. The bootstrap is used during the
  /// call only.
  static Result<std::unique_ptr<Runtime>> start(Bootstrap& bootstrap, RuntimeParts parts);
  ~Runtime();

  const World& world() const { return groups_.world().communicator.world(); }

  /// The named door. A call that can never work fails through its Work, on every rank.
  Result<std::shared_ptr<Work>> submit(Submission submission);
  /// Several operations that are done together or not at all; all have names or none has. Work by
  /// member, each with its own status.
  Result<std::vector<std::shared_ptr<Work>>> submit_group(std::vector<Submission> submissions,
                                                          const std::string& group_name);
  /// The ordered door; name and absent are not used. kInvalidArgument for what can never work.
  Result<std::shared_ptr<Work>> submit_ordered(Submission submission);

  /// A blocking call of the ordered door. kInvalidArgument for what can never work.
  Status call_ordered(const OrderedArguments& arguments);
  /// The same without waiting.
  Result<std::shared_ptr<Work>> start_ordered(const OrderedArguments& arguments,
                                              std::shared_ptr<const void> keep_alive);
  /// The driver whose try_call() carries small ones, for callers that keep it; null where it
  /// carries no all-reduce.
  std::shared_ptr<Driver> driver_of_small_calls() const;
  Status allreduce_ordered(const std::byte* input, std::byte* output, std::int64_t count,
                           DataType type, ReduceOp op);

  /// One message to or from another rank (kSend, kReceive; signature.root is that rank).
  /// kInvalidArgument for what can never work on this rank alone.
  Result<std::shared_ptr<Work>> submit_message(Submission submission);

  /// Collective over the world: a process set of these world ranks. The Work's value is its number.
  Result<std::shared_ptr<Work>> add_process_set(std::vector<int> ranks);
  /// Collective over the world. No rank may have operations in flight on it.
  Result<std::shared_ptr<Work>> remove_process_set(std::uint32_t id);
  /// World ranks of a process set, ascending; kInvalidArgument if there is none of this number.
  Result<std::vector<int>> ranks_of(std::uint32_t id);
  std::vector<std::uint32_t> process_sets() const { return groups_.ids(); }
  /// Joins of a process set that have ended on all of its ranks, as far as this one knows.
  /// kInvalidArgument if there is none of this number.
  Result<std::uint64_t> joins(std::uint32_t id) {
    return groups_.with(id,
                        [](Group& group) -> Result<std::uint64_t> { return group.joins.load(); });
  }

  /// Zeroed memory that the ranks of this host have mapped, if they share any (HostWindow), else
  /// private memory. It may outlive the runtime. kOutOfMemory.
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes) const;

  /// As allocate(), or null where that memory would be private, and where the arena has too little
  /// left, which is logged once.
  Result<std::shared_ptr<std::byte>> allocate_if_shared(std::size_t bytes) const;

  /// Zeroed memory of this rank's device that the ranks of this host have mapped (DeviceArena);
  /// null where there is none, or too little, which is logged once. It may outlive the runtime.
  /// Waits for the device. kDevice.
  Result<std::shared_ptr<std::byte>> allocate_on_device(std::size_t bytes) const;

  /// This rank's; null if it has none. Any thread.
  Accelerator* accelerator() const { return devices_.accelerator(); }

  /// What this rank runs on. Takes the progress token for a moment.
  RuntimeInfo info() const;

  /// Fails all that is and will be under way, on all ranks, with this rank's number and `reason`.
  void abort(const std::string& reason);

  /// Ends this rank's part; what is under way fails with kShutdown. Further calls do nothing. False
  /// if a thread that drives has not made way until then: then nothing is ended.
  bool shut_down(
      std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());
  /// The failure that aborted this rank, if any; an orderly shutdown is none.
  bool failed() const { return !failure().ok(); }
  Status failure() const;
  /// Reads what the negotiation of a process set has counted. Takes the progress token for a
  /// moment.
  Controller::Counters negotiation_counters(std::uint32_t process_set = 0);

 private:
  Runtime(World world, RuntimeParts parts, std::unique_ptr<Timeline> timeline);
  Status learn_links(Bootstrap& bootstrap, Deadline deadline);
  using OpenAccelerator = decltype(RuntimeParts::open_accelerator);
  Status connect(Bootstrap& bootstrap, std::vector<Peer> peers, const OpenAccelerator& open);
  /// Collective, once the accelerators are open; only for KOLO_OPERATIONS=nccl.
  using OpenNccl = decltype(RuntimeParts::open_nccl);
  Status connect_nccl(Bootstrap& bootstrap, const OpenNccl& open);
  Status start_timeline(Bootstrap& bootstrap);
  void log_start(const Bootstrap& bootstrap) const;
  Status add_initial_process_sets(const std::vector<std::vector<int>>& sets);
  Result<std::shared_ptr<Work>> submit_in_order(Submission submission);
  /// Of an arena: null where it has too little left, which is logged once.
  Result<std::shared_ptr<std::byte>> null_if_full(Result<std::shared_ptr<std::byte>> memory,
                                                  std::string_view variable,
                                                  std::atomic<bool>& told) const;
  Result<EntryPtr> make_entry(Submission submission);
  Status submit_entries(std::span<EntryPtr> entries, std::uint32_t process_set, bool will_wait);
  Status check_member(const Group& group, const Entry& entry) const;

  const Config config_;
  const Log log_;
  std::unique_ptr<Transport> transport_;
  const std::unique_ptr<Timeline> timeline_;
  const ThreadedDevice device_;
  HostWindow window_;
  DeviceWindow devices_;  ///< its farewell is said on the boards of the window
  mutable std::atomic<bool> told_of_full_arena_ = false;
  mutable std::atomic<bool> told_of_full_device_arena_ = false;
  NcclSite nccl_;  ///< the groups' communicators end before it
  Waker waker_;
  GroupRegistry groups_;
  LinkCosts links_;
  LinkCache link_cache_;  ///< of the transport as it was before links were open
  std::string way_in_;
  Cycle cycle_;
  std::shared_ptr<Driver> driver_;
};

}  // namespace kolo
