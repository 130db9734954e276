// Group: one process set at work: its communicator, its doors, its negotiation and its operations.
// The world is group 0; sets are added and removed at run time. All but what GroupRegistry guards
// belongs to the progress token's holder.
#pragma once

#include "runtime/base/log.h"
#include "runtime/base/waker.h"
#include "runtime/communicator/control_plane.h"
#include "runtime/communicator/host_window.h"
#include "runtime/communicator/one_shot.h"
#include "runtime/communicator/place_slots.h"
#include "runtime/communicator/recent_calls.h"
#include "runtime/health/departures.h"
#include "runtime/nccl/nccl_lanes.h"
#include "runtime/negotiation/controller.h"
#include "runtime/negotiation/point_to_point.h"
#include "runtime/operation.h"
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
  /// `place`: in the window (HostWindow::kPlaces); its boards and slots are open() once
  /// the window is.
  Group(Communicator members, int place, Transport& transport, const Device& device, Waker& waker,
        HostWindow& window, const NcclSite& nccl, const Config& config, const Log& log);

  bool is_member() const { return communicator.rank() >= 0; }
  /// Operations of that door that run.
  std::size_t running_of(Door door) const {
    const auto is_of = [door](const auto& operation) { return operation->door() == door; };
    return static_cast<std::size_t>(std::count_if(running.begin(), running.end(), is_of));
  }
  bool has_planned(Door door) const {
    const auto is_of = [door](const PlannedOperation& operation) { return operation.door == door; };
    return std::any_of(planned.begin(), planned.end(), is_of);
  }
  /// A collective still moves data between ranks, which KOLO_OPERATION_TIMEOUT bounds.
  bool moves_collectives() const {
    return std::any_of(running.begin(), running.end(), [](const auto& operation) {
      return operation->door() != Door::kPointToPoint && !operation->handed_out();
    });
  }
  bool has_work() const {
    return !running.empty() || !planned.empty() || controller.has_pending() || slots.has_message();
  }
  std::uint64_t next_sequence(Door door) {
    return next_sequences[static_cast<std::size_t>(door)]++;
  }
  /// Of the ordered door, that have their number.
  std::uint64_t calls() const { return next_sequences[static_cast<std::size_t>(Door::kOrdered)]; }
  /// Its part of the window; `allreduces` as of OneShot::open(). Precondition: is_member().
  void open(bool allreduces);
  /// Every lower number of that door is done.
  std::uint64_t done_below(Door door) const;
  /// Whether an ordered call is to have all ranks meet before any sends: where messages go one way,
  /// now and then, so that who is ahead does not fill the memory of who comes late. Counts the
  /// call; alike on all ranks, which make the same ones.
  bool meets_first(const Signature& signature);
  /// For the goodbye to the communicator's rank `reader`.
  Progress progress(int reader) const;

  /// How often another rank was asked about an ordered call that waits.
  struct Asked {
    std::uint64_t sequence = 0;
    int times = 0;
  };

  Communicator communicator;
  TensorTable table;     ///< its own mutex
  OrderedQueue ordered;  ///< sends and receives too; its own mutex
  ControlPlane control_plane;
  NcclLanes nccl;
  Controller controller;
  PointToPoint point_to_point;
  Departures departures;
  PlaceSlots slots;
  CallHistory history;  ///< of all ordered calls that have their number
  RecentCalls recent_calls;
  OneShot one_shot;

  /// Threads within a blocking call of the ordered door: the group outlives them.
  std::atomic<int> callers = 0;
  /// This rank has asked to remove it, and calls on it no more. Guarded by the registry.
  bool retiring = false;

  /// The list of the world's responses that has added it; nothing of one from the start.
  std::optional<std::uint64_t> added_in;
  bool flush = false;
  bool removed = false;
  std::deque<PlannedOperation> planned;
  std::vector<std::unique_ptr<Operation>> running;
  std::vector<std::unique_ptr<Operation>> idle;
  std::array<std::uint64_t, kDoorCount> next_sequences = {};
  /// The first planned operation, since it was seen that it does not begin though nothing runs.
  struct Held {
    Door door;
    std::uint64_t sequence;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<Held> held;
  /// A join that all agreed on. Its caller may end this rank at once, so it is told when what ranks
  /// agreed on before is done here, calls that this rank is lent to included.
  struct Joined {
    EntryPtr entry;
    Outcome outcome;
    std::uint64_t after;  ///< every lower number of the named door
  };
  std::optional<Joined> joined;
  std::atomic<std::uint64_t> joins = 0;  ///< that all ranks have come to
  Asked asked;
  std::uint64_t bytes_ahead = 0;  ///< that ranks may have sent since they met; see meets_first()
  /// Ordered calls that end before their messages are looked through again; time has them looked
  /// through all the same.
  std::size_t calls_before_look = 0;
};

/// All groups of a rank. Any thread finds one by its number; the token's holder adds and removes.
class GroupRegistry {
 public:
  GroupRegistry(World world, Transport& transport, const Device& device, Waker& waker,
                HostWindow& window, const NcclSite& nccl, const Config& config, const Log& log);

  /// Any thread: it is always there.
  Group& world() { return *world_; }
  const Group& world() const { return *world_; }
  /// Token holder: all, in order of their numbers, removed ones that still run something included.
  /// A group that is added while this is iterated comes last.
  std::span<const std::unique_ptr<Group>> all() const { return groups_; }
  /// Token holder: null if there is none, or none any more.
  Group* find(std::uint32_t id) const;
  /// Token holder: whether a group of this number may still be added.
  bool is_to_come(std::uint32_t id) const { return id >= next_id_; }

  /// Token holder: adds a set of world ranks, ascending, under the next number. kInvalidArgument if
  /// there is one of the same ranks.
  Result<Group*> add(const std::vector<int>& ranks);
  /// Token holder, or before there is one: the windows are open, and what is added later has its
  /// boards at once. `allreduces`: as of OneShot::open().
  void open_boards(bool allreduces);
  /// Token holder: nobody finds it any more. kInvalidArgument if there is none, or it is the world.
  Result<Group*> remove(std::uint32_t id);
  /// Any thread: it is not removed after all, and may be called on again.
  void reopen(std::uint32_t id);
  /// Token holder: destroys removed groups that run nothing any more, and that nobody calls on.
  void drop_removed();

  /// Any thread: use(group), under the lock of the registry but for the world. kInvalidArgument if
  /// there is no such group.
  template <class Use>
  auto with(std::uint32_t id, Use&& use) -> decltype(use(std::declval<Group&>())) {
    if (id == 0) return use(*world_);
    const std::lock_guard lock(mutex_);
    Group* const group = find(id);
    if (group == nullptr) return no_such_group(id);
    return use(*group);
  }

  /// Any thread: as TensorTable::request_flush, of every group.
  void request_flush(bool wake);

  /// Any thread: the numbers of the process sets, the world's included.
  std::vector<std::uint32_t> ids() const;

 private:
  Error no_such_group(std::uint32_t id) const;
  /// The lowest place that no other set of any of these ranks has; kNoPlace if there is none. All
  /// ranks know all sets in the same order, so they find the same. A set that was removed has left
  /// its place: removing it was agreed on while no rank had anything under way there, nor would
  /// begin anything; so nobody reads its boards any more. What devices still do keeps its slots of
  /// their window.
  int free_place(const std::vector<int>& ranks) const;

  Transport& transport_;
  const Device& device_;
  Waker& waker_;
  HostWindow& window_;
  const NcclSite& nccl_;
  const Config& config_;
  const Log& log_;
  mutable std::mutex mutex_;  ///< guards changes of groups_, and other threads' reading of it
  std::vector<std::unique_ptr<Group>> groups_;
  Group* world_ = nullptr;  ///< the first of them
  std::uint32_t next_id_ = 1;
  std::optional<bool> boards_carry_allreduces_;  ///< nothing before they are open
};

}  // namespace kolo
