// How the cycle adds and removes process sets, once the world has agreed. Progress token's holder.
#include "runtime/base/check.h"
#include "runtime/cycle.h"

#include <chrono>
#include <string>
#include <utility>

namespace kolo {

Result<std::int64_t> Cycle::change_groups(const Signature& signature) {
  // The world's agreements come in one order on every rank, so the numbers are the same everywhere.
  if (signature.kind == OperationKind::kRemoveProcessSet) {
    KOLO_ASSIGN(Group* const group, groups_.remove(static_cast<std::uint32_t>(signature.root)));
    const Error error = KOLO_ERROR(kInvalidArgument, "rank {}: process set {} was removed",
                                   world_.rank(), group->communicator.id());
    group->table.close(error);
    group->ordered.close(error);
    // What runs already runs to its end.
    std::vector<EntryPtr> entries = group->controller.take_pending();
    for (EntryPtr& entry : group->point_to_point.take_pending())
      entries.push_back(std::move(entry));
    group->table.drain(entries);
    group->ordered.drain(entries);
    for (const EntryPtr& entry : entries) finish(*group, *entry, error, {});
    return signature.root;
  }
  const std::vector<int> ranks(signature.shape.begin(), signature.shape.end());
  KOLO_ASSIGN(Group* const group, groups_.add(ranks));
  std::vector<EarlyMessage> messages = std::exchange(early_messages_, {});
  for (EarlyMessage& early : messages) {
    if (early.group != group->communicator.id()) {
      early_messages_.push_back(std::move(early));
    } else {
      on_message(early.peer, std::as_bytes(std::span(early.bytes)));
    }
  }
  return group->communicator.id();
}

/// Operations wait until all members have added the set: whoever leaves before never does.
void Cycle::check_slots(Group& group, Clock::time_point now) {
  if (group.planned.empty() || group.slots.settled()) return;
  const std::string what = group.planned.front().entries.front()->name;
  const std::chrono::seconds timeout(config_.operation_timeout_s);
  for (const int rank : group.slots.silent()) {
    if (groups_.world().departures.contains(rank)) {
      note_failure({KOLO_ERROR(kPeerLost, "'{}'{}: rank {} has shut down without adding the set",
                               what, group.communicator.suffix(), rank),
                    rank});
    } else if (now - group.slots.opened_at() >= timeout) {
      note_failure({KOLO_ERROR(kTimeout,
                               "'{}'{}: rank {} did not add the set within {} s "
                               "(KOLO_OPERATION_TIMEOUT)",
                               what, group.communicator.suffix(), rank, timeout.count())});
    }
  }
}

}  // namespace kolo
