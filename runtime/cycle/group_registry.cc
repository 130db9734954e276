#include "runtime/cycle/group_registry.h"

#include "runtime/base/check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace kolo {

GroupRegistry::GroupRegistry(World world, const RankServices& services, Waker& waker,
                             const NcclSite& nccl, const Config& config, const Log& log)
    : services_(services), waker_(waker), nccl_(nccl), config_(config), log_(log) {
  world_ = &append(Communicator(0, std::move(world)), 0);
}

Group& GroupRegistry::append(Communicator communicator, int partition) {
  auto group = std::make_unique<Group>(std::move(communicator), partition, services_, waker_, nccl_,
                                       config_, log_);
  if (exchange_use_ && group->is_member()) group->open(services_.window, *exchange_use_);
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(group));
  return *groups_.back();
}

int GroupRegistry::free_partition(const std::vector<int>& ranks) const {
  std::array<bool, HostWindow::kPartitions> taken = {true};  // the world's
  for (const auto& group : groups_) {
    const int partition = group->slots().partition();
    if (group->lifetime.removed || partition == HostWindow::kNoPartition) continue;
    const bool meets = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
      return group->communicator().index_of(rank).has_value();
    });
    if (meets) taken[static_cast<std::size_t>(partition)] = true;
  }
  const auto it = std::find(taken.begin(), taken.end(), false);
  return it == taken.end() ? HostWindow::kNoPartition : static_cast<int>(it - taken.begin());
}

void GroupRegistry::open_control_segments(ExchangeUse use) {
  exchange_use_ = use;
  for (const auto& group : groups_)
    if (group->is_member()) group->open(services_.window, use);
}

Group* GroupRegistry::find(std::uint32_t id) const {
  const auto it = std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) {
    return group->communicator().id() == id && !group->lifetime.removed;
  });
  return it == groups_.end() ? nullptr : it->get();
}

Result<Group*> GroupRegistry::add(const std::vector<int>& ranks, bool may_be_another) {
  for (const auto& group : groups_) {
    if (may_be_another || group->lifetime.removed || group->communicator().ranks() != ranks)
      continue;
    return KOLO_ERROR(kInvalidArgument,
                      "there is a process set of ranks {} already: number {}; use that one, which "
                      "process_sets() lists",
                      fmt::join(ranks, ", "), group->communicator().id());
  }
  if (next_id_ > Exchange::kLastSet)
    return KOLO_ERROR(kUnsupported, "a job adds at most {} process sets, removed ones included",
                      Exchange::kLastSet);
  const int partition = free_partition(ranks);
  return &append(Communicator(next_id_++, world().communicator(), ranks), partition);
}

Group& GroupRegistry::add_trial() {
  const Communicator& all = world().communicator();
  return append(Communicator(Exchange::kTrialSet, all, all.ranks()), 0);
}

Result<Group*> GroupRegistry::remove(std::uint32_t id) {
  Group* const group = id == 0 ? nullptr : find(id);
  if (group == nullptr) return no_such_group(id);
  const std::lock_guard lock(mutex_);
  group->lifetime.removed = true;
  return group;
}

void GroupRegistry::reopen(std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  if (Group* const group = find(id)) group->lifetime.retiring = false;
}

void GroupRegistry::drop_removed() {
  // A removed group gets no new callers.
  const auto is_over = [](const auto& group) {
    return group->lifetime.removed && !group->has_work() &&
           group->lifetime.callers.load(std::memory_order_acquire) == 0;
  };
  if (std::none_of(groups_.begin(), groups_.end(), is_over)) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, is_over);
}

void GroupRegistry::request_flush(bool wake) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& group : groups_) group->table().request_flush(false);
  }
  if (wake) waker_.wake();
}

std::vector<std::uint32_t> GroupRegistry::ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint32_t> ids;
  for (const auto& group : groups_) {
    if (!group->lifetime.removed) ids.push_back(group->communicator().id());
  }
  return ids;
}

Error GroupRegistry::no_such_group(std::uint32_t id) const {
  const int rank = world().communicator().rank();
  if (id == 0) {
    return KOLO_ERROR(kInvalidArgument,
                      "rank {}: process set 0 is the world, which cannot be removed; shutdown() "
                      "ends it",
                      rank);
  }
  return KOLO_ERROR(kInvalidArgument,
                    "rank {}: there is no process set {}; it was never added, or was removed", rank,
                    id);
}

}  // namespace kolo
