// Making, finding and dropping groups.
#include "runtime/cycle/group.h"

#include "runtime/base/check.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace kolo {
Group::Group(Communicator members, int partition, Transport& transport, const Device& device,
             Waker& waker, HostWindow& window, const NcclSite& site, const Config& config,
             const Log& log)
    : communicator(std::move(members)),
      table(waker, static_cast<std::uint64_t>(config.batch_size)),
      control_plane(transport, communicator),
      nccl(site, communicator, control_plane),
      controller(communicator, control_plane, config, log),
      point_to_point(communicator, control_plane, config),
      departures(communicator.size()),
      slots(communicator, window, partition, log),
      exchange(communicator, recent_calls, window, device, transport, control_plane),
      services{communicator, slots, exchange, nccl} {}

const Resources& Group::resources(const HostWindow& window, const DeviceWindow& devices) {
  if (settled_resources) return *settled_resources;
  if (slots.settled()) return settled_resources.emplace(resources_of(services, window, devices));
  return early_resources = resources_of(services, window, devices);
}

void Group::open(bool allreduces) {
  exchange.open(slots.partition(), allreduces);
  slots.open();
}

std::uint64_t Group::done_below(SubmissionMode mode) const {
  std::uint64_t done = next_sequences[static_cast<std::size_t>(mode)];
  for (const auto& operation : running) {
    // After the Works are complete, only this rank's device is still busy with the operation.
    if (operation->mode() == mode && !operation->works_completed())
      done = std::min(done, operation->sequence());
  }
  for (const auto& operation : planned)
    if (operation.mode == mode) done = std::min(done, operation.sequence);
  return done;
}

bool Group::meets_first(const Signature& signature) {
  if (signature.kind != OperationKind::kBroadcast) return false;
  // The control segments bound a rank to one call ahead.
  const std::uint64_t bytes = signature.bytes();
  if (!signature.on_device && exchange.limits().take(OperationKind::kBroadcast, bytes))
    return false;
  bytes_ahead += bytes + thresholds::kWaitingMessage;
  if (bytes_ahead <= thresholds::kBroadcastAhead) return false;
  bytes_ahead = 0;
  return true;
}

Progress Group::progress(int reader) const {
  Progress progress{controller.counters().agreements, {}, point_to_point.count_unstarted(reader)};
  // Messages are numbered per receiver, so their numbers mean nothing here.
  for (const SubmissionMode mode : {SubmissionMode::kNegotiated, SubmissionMode::kInOrder})
    progress.operations[static_cast<std::size_t>(mode)] = done_below(mode);
  progress.refused = recent_calls.refused_before(done_below(SubmissionMode::kInOrder));
  progress.messages_cut += static_cast<std::uint64_t>(
      std::count_if(running.begin(), running.end(), [&](const auto& operation) {
        return operation->mode() == SubmissionMode::kPointToPoint &&
               !operation->works_completed() &&
               communicator.index_of(operation->message_peer()) == reader;
      }));
  return progress;
}

GroupRegistry::GroupRegistry(World world, Transport& transport, const Device& device, Waker& waker,
                             HostWindow& window, const NcclSite& nccl, const Config& config,
                             const Log& log)
    : transport_(transport),
      device_(device),
      waker_(waker),
      window_(window),
      nccl_(nccl),
      config_(config),
      log_(log) {
  groups_.push_back(std::make_unique<Group>(Communicator(0, std::move(world)), 0, transport_,
                                            device_, waker_, window_, nccl_, config_, log_));
  world_ = groups_.front().get();
}

int GroupRegistry::free_partition(const std::vector<int>& ranks) const {
  std::array<bool, HostWindow::kPartitions> taken = {true};  // the world's
  for (const auto& group : groups_) {
    const int partition = group->slots.partition();
    if (group->removed || partition == HostWindow::kNoPartition) continue;
    const bool meets = std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
      return group->communicator.index_of(rank).has_value();
    });
    if (meets) taken[static_cast<std::size_t>(partition)] = true;
  }
  const auto it = std::find(taken.begin(), taken.end(), false);
  return it == taken.end() ? HostWindow::kNoPartition : static_cast<int>(it - taken.begin());
}

void GroupRegistry::open_control_segments(bool allreduces) {
  exchange_carries_allreduces_ = allreduces;
  for (const auto& group : groups_)
    if (group->is_member()) group->open(allreduces);
}

Group* GroupRegistry::find(std::uint32_t id) const {
  const auto it = std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) {
    return group->communicator.id() == id && !group->removed;
  });
  return it == groups_.end() ? nullptr : it->get();
}

Result<Group*> GroupRegistry::add(const std::vector<int>& ranks) {
  for (const auto& group : groups_) {
    if (group->removed || group->communicator.ranks() != ranks) continue;
    return KOLO_ERROR(kInvalidArgument, "there is a process set of ranks {} already: number {}",
                      fmt::join(ranks, ", "), group->communicator.id());
  }
  if (next_id_ > Exchange::kLastSet)
    return KOLO_ERROR(kUnsupported, "a job adds at most {} process sets, removed ones included",
                      Exchange::kLastSet);
  auto group = std::make_unique<Group>(Communicator(next_id_, world().communicator, ranks),
                                       free_partition(ranks), transport_, device_, waker_, window_,
                                       nccl_, config_, log_);
  if (exchange_carries_allreduces_ && group->is_member())
    group->open(*exchange_carries_allreduces_);
  const std::lock_guard lock(mutex_);
  ++next_id_;
  groups_.push_back(std::move(group));
  return groups_.back().get();
}

Result<Group*> GroupRegistry::remove(std::uint32_t id) {
  Group* const group = id == 0 ? nullptr : find(id);
  if (group == nullptr) return no_such_group(id);
  const std::lock_guard lock(mutex_);
  group->removed = true;
  return group;
}

void GroupRegistry::reopen(std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  if (Group* const group = find(id)) group->retiring = false;
}

void GroupRegistry::drop_removed() {
  // A removed group gets no new callers.
  const auto is_over = [](const auto& group) {
    return group->removed && !group->has_work() &&
           group->callers.load(std::memory_order_acquire) == 0;
  };
  if (std::none_of(groups_.begin(), groups_.end(), is_over)) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, is_over);
}

void GroupRegistry::request_flush(bool wake) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& group : groups_) group->table.request_flush(false);
  }
  if (wake) waker_.wake();
}

std::vector<std::uint32_t> GroupRegistry::ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint32_t> ids;
  for (const auto& group : groups_) {
    if (!group->removed) ids.push_back(group->communicator.id());
  }
  return ids;
}

Error GroupRegistry::no_such_group(std::uint32_t id) const {
  return KOLO_ERROR(kInvalidArgument,
                    "rank {}: there is no process set {}{}; it was never added, or was removed",
                    world().communicator.rank(), id, id == 0 ? " to remove" : "");
}

}  // namespace kolo
