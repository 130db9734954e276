// Group: one process set at work: its communicator, its queues of submissions, its negotiation and
// its operations. The world is group 0; other sets are added and removed at run time. Token holder
// only, except for what GroupRegistry guards.
#pragma once

#include "runtime/base/log.h"
#include "runtime/base/waker.h"
#include "runtime/communicator/control_plane.h"
#include "runtime/exchange/exchange.h"
#include "runtime/exchange/recent_calls.h"
#include "runtime/health/departures.h"
#include "runtime/memory/host_window.h"
#include "runtime/memory/partition_slots.h"
#include "runtime/nccl/nccl_communicators.h"
#include "runtime/negotiation/controller.h"
#include "runtime/negotiation/point_to_point.h"
#include "runtime/operation/operation.h"
#include "runtime/operation/resources.h"
#include "runtime/submission/ordered_queue.h"
#include "runtime/submission/tensor_table.h"

#include <kolo/config.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

struct Group {
  /// `partition`: of the window (HostWindow::kPartitions). open() opens its control segments and
  /// slots after the window is open.
  Group(Communicator members, int partition, Transport& transport, const Device& device,
        Waker& waker, HostWindow& window, const NcclSite& nccl, const Config& config,
        const Log& log);

  bool is_member() const { return communicator.rank() >= 0; }
  /// Number of running operations of a mode.
  std::size_t running_of(SubmissionMode mode) const {
    const auto is_of = [mode](const auto& operation) { return operation->mode() == mode; };
    return static_cast<std::size_t>(std::count_if(running.begin(), running.end(), is_of));
  }
  bool has_planned(SubmissionMode mode) const {
    const auto is_of = [mode](const PlannedOperation& operation) { return operation.mode == mode; };
    return std::any_of(planned.begin(), planned.end(), is_of);
  }
  /// A collective still moves data between ranks; KOLO_OPERATION_TIMEOUT bounds it.
  bool moves_collectives() const {
    return std::any_of(running.begin(), running.end(), [](const auto& operation) {
      return operation->mode() != SubmissionMode::kPointToPoint && !operation->works_completed();
    });
  }
  bool has_work() const {
    return !running.empty() || !planned.empty() || controller.has_pending() || slots.has_message();
  }
  std::uint64_t next_sequence(SubmissionMode mode) {
    return next_sequences[static_cast<std::size_t>(mode)]++;
  }
  /// Number of in-order calls that have their number.
  std::uint64_t calls() const {
    return next_sequences[static_cast<std::size_t>(SubmissionMode::kInOrder)];
  }
  /// Resources that route() uses; the same on all ranks of the set once the slots are settled.
  const Resources& resources(const HostWindow& window, const DeviceWindow& devices);
  /// Opens the set's partition of the window; `allreduces`: see Exchange::open(). Precondition:
  /// is_member().
  void open(bool allreduces);
  /// All operations of that mode with lower numbers are done.
  std::uint64_t done_below(SubmissionMode mode) const;
  /// Whether all ranks must meet before any sends in this ordered call. Needed now and then where
  /// messages go one way, so that a rank that is ahead does not fill the memory of a late one.
  /// Counts the call. The same on all ranks, because they make the same calls.
  bool meets_first(const Signature& signature);
  /// Progress for the shutdown notice to the communicator's rank `reader`.
  Progress progress(int reader) const;

  /// How often another rank was asked about an ordered call that waits.
  struct Asked {
    std::uint64_t sequence = 0;
    int times = 0;
  };

  Communicator communicator;
  TensorTable table;     ///< has its own mutex
  OrderedQueue ordered;  ///< also sends and receives; has its own mutex
  ControlPlane control_plane;
  NcclCommunicators nccl;
  Controller controller;
  PointToPoint point_to_point;
  Departures departures;
  PartitionSlots slots;
  CallHistory history;  ///< all ordered calls that have their number
  RecentCalls recent_calls;
  Exchange exchange;
  GroupServices services;

  /// Threads in a blocking in-order call; the group outlives them.
  std::atomic<int> callers = 0;
  /// This rank has asked to remove the set, and makes no more calls on it. Guarded by the registry.
  bool retiring = false;

  /// Number of the world's response list that added the set; nothing for a set from the start.
  std::optional<std::uint64_t> added_in;
  bool flush = false;
  bool removed = false;
  std::deque<PlannedOperation> planned;
  std::vector<std::unique_ptr<Operation>> running;
  std::vector<std::unique_ptr<Operation>> idle;
  std::optional<Resources> settled_resources;
  Resources early_resources;  ///< for messages, which do not wait for the slots
  std::array<std::uint64_t, kSubmissionModeCount> next_sequences = {};
  /// The first planned operation, and since when it has not begun although nothing runs.
  struct Held {
    SubmissionMode mode;
    std::uint64_t sequence;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<Held> held;
  /// A join that all ranks agreed on. Its Work completes when all earlier agreed operations are
  /// done here, including those to which this rank contributes zeros: its caller may end this rank
  /// at once.
  struct Joined {
    EntryPtr entry;
    Outcome outcome;
    std::uint64_t after;  ///< negotiated operations below this number must be done first
  };
  std::optional<Joined> joined;
  std::atomic<std::uint64_t> joins = 0;  ///< joins that have ended on all ranks
  Asked asked;
  std::uint64_t bytes_ahead = 0;  ///< bytes possibly sent since ranks met; see meets_first()
  /// Ordered calls that may end before unclaimed messages are checked again. The timed check comes
  /// regardless.
  std::size_t calls_before_look = 0;
};

/// All groups of a rank. Any thread finds a group by its number; the token holder adds and removes.
class GroupRegistry {
 public:
  GroupRegistry(World world, Transport& transport, const Device& device, Waker& waker,
                HostWindow& window, const NcclSite& nccl, const Config& config, const Log& log);

  /// Any thread. The world always exists.
  Group& world() { return *world_; }
  const Group& world() const { return *world_; }
  /// Token holder: all groups in order of their numbers, including removed ones that still run
  /// operations. A group that is added during an iteration comes last.
  std::span<const std::unique_ptr<Group>> all() const { return groups_; }
  /// Token holder: null if there is no such group, or it was removed.
  Group* find(std::uint32_t id) const;
  /// Token holder: whether a group of this number may still be added.
  bool is_to_come(std::uint32_t id) const { return id >= next_id_; }

  /// Token holder: adds a set of world ranks, ascending, under the next number. kInvalidArgument if
  /// a set of the same ranks exists.
  Result<Group*> add(const std::vector<int>& ranks);
  /// Token holder, or before the first step: opens the control segments after the windows are open.
  /// Sets that are added later get theirs at once. `allreduces`: see Exchange::open().
  void open_control_segments(bool allreduces);
  /// Token holder: nobody finds the group afterwards. kInvalidArgument if there is none, or it is
  /// the world.
  Result<Group*> remove(std::uint32_t id);
  /// Any thread: the set is not removed after all and accepts calls again.
  void reopen(std::uint32_t id);
  /// Token holder: destroys removed groups without running operations and callers.
  void drop_removed();

  /// Any thread: use(group), under the registry's lock except for the world. kInvalidArgument if
  /// there is no such group.
  template <class Use>
  auto with(std::uint32_t id, Use&& use) -> decltype(use(std::declval<Group&>())) {
    if (id == 0) return use(*world_);
    const std::lock_guard lock(mutex_);
    Group* const group = find(id);
    if (group == nullptr) return no_such_group(id);
    return use(*group);
  }

  /// Any thread: TensorTable::request_flush of every group.
  void request_flush(bool wake);

  /// Any thread: numbers of the process sets, including the world.
  std::vector<std::uint32_t> ids() const;

 private:
  Error no_such_group(std::uint32_t id) const;
  /// The lowest partition that no other set of any of these ranks has; kNoPartition if there is
  /// none. All ranks add the same sets in the same order, so they find the same partition. A
  /// removed set has left its partition: when ranks agreed on its removal, none had anything under
  /// way there, so nobody reads its control segments any more. Work still on devices keeps its
  /// slots of their window.
  int free_partition(const std::vector<int>& ranks) const;

  Transport& transport_;
  const Device& device_;
  Waker& waker_;
  HostWindow& window_;
  const NcclSite& nccl_;
  const Config& config_;
  const Log& log_;
  mutable std::mutex mutex_;  ///< guards changes of groups_, and reads by other threads
  std::vector<std::unique_ptr<Group>> groups_;
  Group* world_ = nullptr;  ///< the first of groups_
  std::uint32_t next_id_ = 1;
  std::optional<bool> exchange_carries_allreduces_;  ///< set by open_control_segments()
};

}  // namespace kolo
