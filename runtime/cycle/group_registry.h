// GroupRegistry: all process sets of a rank. Owned by Runtime.
#pragma once

#include "runtime/cycle/group.h"

#include <kolo/config.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kolo {

/// All groups of a rank. Any thread finds a group by its number; the token holder adds and removes.
class GroupRegistry {
 public:
  GroupRegistry(World world, const RankServices& services, Waker& waker, const NcclSite& nccl,
                const Config& config, const Log& log);

  /// Any thread. The world always exists.
  Group& world() { return *world_; }
  const Group& world() const { return *world_; }
  /// Token holder: all groups in order of their numbers, including removed ones that still run
  /// operations. A group that is added during an iteration comes last.
  std::span<const std::unique_ptr<Group>> all() const { return groups_; }
  /// Token holder: null if there is no such group, or it was removed.
  Group* find(std::uint32_t id) const;
  /// Token holder: whether a group of this number may still be added.
  bool is_to_come(std::uint32_t id) const { return id >= next_id_ && id <= Exchange::kLastSet; }

  /// Token holder: adds a set of world ranks, ascending, under the next number. kInvalidArgument if
  /// a set of the same ranks exists, unless there may be another one.
  Result<Group*> add(const std::vector<int>& ranks, bool may_be_another = false);
  /// Token holder: adds a set of all ranks in the world's partition, numbered Exchange::kTrialSet.
  /// Removed before the world's first operation.
  Group& add_trial();
  /// Token holder, or before the first step: opens the control segments after the windows are open.
  /// Sets that are added later get theirs at once.
  void open_control_segments(ExchangeUse use);
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
  /// Opens the group's control segment if others have theirs.
  Group& append(Communicator communicator, int partition);
  Error no_such_group(std::uint32_t id) const;
  /// The lowest partition that no other set of any of these ranks has; kNoPartition if there is
  /// none. All ranks add the same sets in the same order, so they find the same partition. A
  /// removed set has left its partition: when ranks agreed on its removal, none had anything under
  /// way there, so nobody reads its control segments any more. Work still on devices keeps its
  /// slots of their window.
  int free_partition(const std::vector<int>& ranks) const;

  const RankServices& services_;
  Waker& waker_;
  const NcclSite& nccl_;
  const Config& config_;
  const Log& log_;
  mutable std::mutex mutex_;  ///< guards changes of groups_, and reads by other threads
  std::vector<std::unique_ptr<Group>> groups_;
  Group* world_ = nullptr;  ///< the first of groups_
  std::uint32_t next_id_ = 1;
  std::optional<ExchangeUse> exchange_use_;  ///< set by open_control_segments()
};

}  // namespace kolo
