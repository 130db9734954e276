// How the cycle adds and removes process sets after the world has agreed. Progress token holder.
#include "runtime/base/check.h"
#include "runtime/cycle/cycle.h"

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
    // Running operations run to their end.
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
  group->added_in = lists_planned_;
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

bool Cycle::tell_of_slots(Group& group) {
  const auto message = group.slots.take_message();
  if (!message) return false;
  if (group.communicator.rank() == 0) {
    const auto size = static_cast<std::size_t>(group.communicator.size());
    note(tell_others(group, MessageKind::kSlots, std::vector(size, *message), Abort::kNoCulprit));
  } else if (!groups_.world().departures.contains(group.communicator.ranks().front())) {
    note(group.control_plane.send(0, MessageKind::kSlots, *message));
  }
  return true;
}

/// Operations wait until all members have added the set: a member that leaves before never does.
void Cycle::check_slots(Group& group, Clock::time_point now) {
  PartitionSlots& slots = group.slots;
  if (slots.settled()) return;
  std::optional<int> left = slots.left();
  for (const int rank : slots.silent()) {
    if (left || !groups_.world().departures.contains(rank)) continue;
    slots.rank_left(*group.communicator.index_of(rank));
    left = rank;
  }
  if (group.planned.empty()) return;
  const std::string what = fmt::format("'{}'{}", group.planned.front().entries.front()->name,
                                       group.communicator.suffix());
  const std::chrono::seconds timeout(config_.operation_timeout_s);
  if (left) {
    note_failure(
        {KOLO_ERROR(kPeerLost, "{}: rank {} has shut down before all ranks had added the set", what,
                    *left),
         *left});
  } else if (now - slots.opened_at() >= timeout) {
    note_failure({KOLO_ERROR(kTimeout,
                             "{}: rank {} did not say within {} s (KOLO_OPERATION_TIMEOUT) that "
                             "the set was added{}",
                             what, slots.silent().front(), timeout.count(),
                             group.communicator.rank() == 0 ? "" : " on all ranks")});
  }
}

}  // namespace kolo
