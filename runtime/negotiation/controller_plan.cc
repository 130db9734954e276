// Controller: steps that repeat, by a LockedPlan.
#include "runtime/negotiation/controller.h"
#include "runtime/submission/recorded.h"

#include <cstddef>
#include <string>
#include <utility>

namespace kolo {

Result<bool> Controller::announce_by_plan(Clock::time_point now, bool flush) {
  if (!plan_.is_locked()) return false;  // once all have left it
  const bool all = waiting_.announce_by_slot([&](const Entry& entry) {
    auto slot = slot_of(entry);
    if (slot && !plan_.add(*slot, entry.step, now)) slot.reset();
    if (slot) ++counters_.cached;
    return slot;
  });
  const bool has_counted = plan_.count(flush, now, [&](const SlotsBySteps& list) {
    if (!records()) return;
    for (const SlotsOfStep& some : list)
      recorder_->announced(communicator_.id(), some.step, trace_time(now), some.slots.words());
  });
  if (!all) plan_.leave(now);
  unannounced_bytes_ = 0;
  flush_ = false;
  KOLO_TRY(plan_.pass_on());
  return has_counted || !all;
}

bool Controller::settle_plan() {
  const bool ends = plan_.all_left();  // before next(): then its last lists are the plan's last
  bool moved = ends;
  while (const SlotSet* const list = plan_.next()) {
    ++counters_.planned;
    take_slots(*list);
    plan_.take();
    moved = true;
  }
  if (!ends) return moved;
  plan_.end();
  steps_.note_end(plan_.steps());
  if (plan_.has_calls()) waiting_.take_back();  // else they are announced, or there are none
  flush_ = true;
  return moved;
}

Result<bool> Controller::follow_plan(Clock::time_point now) {
  if (!plan_.is_on()) return false;
  if (plan_.should_leave(now)) plan_.leave(now);
  KOLO_TRY(plan_.pass_on());
  const bool moved = settle_plan();
  KOLO_TRY(relay_.take_early());
  return moved;
}

Result<bool> Controller::leave_plan(Clock::time_point now) {
  if (!plan_.leads()) return false;
  plan_.leave(now);
  KOLO_TRY(follow_plan(now));
  return plan_.is_on();
}

Status Controller::note_steps(const SlotSet& slots) {
  if (!plan_.can_lock()) return {};
  SlotsBySteps list;
  auto agreed = agreed_.back().begin();
  slots.for_each([&](std::uint32_t slot) { insert(list, (agreed++)->entry->step, slot); });
  steps_.note(list);
  const bool is_quiet = !ready_.has_partial() && coordinator_.idle() &&
                        !coordinator_.is_anyone_late() && !waiting_.has_announced();
  if (!steps_.is_steady() || !is_quiet) return {};
  const std::string lists = encode(steps_.lists());
  steps_.forget();
  if (lists.size() > kLongestList) return {};
  KOLO_TRY(relay_.tell_all(MessageKind::kPlan, lists, /*directly=*/false));
  lock_plan(std::as_bytes(std::span(lists)));
  return {};
}

bool Controller::lock_plan(std::span<const std::byte> lists) {
  SlotLists plan;
  if (!plan_.can_lock() || !decode(lists, cache_.size(), plan)) return false;
  plan_.lock(std::move(plan));
  // What is on its way to rank 0 is decided there.
  if (waiting_.has_announced()) plan_.leave(Clock::now());
  return true;
}

Status Controller::check_plan(Clock::time_point now) const {
  const auto since = plan_.leaving_since();
  if (!since || now - *since < std::chrono::seconds(config_.operation_timeout_s)) return {};
  return KOLO_ERROR(kTimeout,
                    "rank {}: {}{} has not left a locked plan within {} s "
                    "(KOLO_OPERATION_TIMEOUT); it is stuck or unreachable",
                    communicator_.world().rank(), plan_.others_in_it(), communicator_.suffix(),
                    config_.operation_timeout_s);
}

}  // namespace kolo
