#include "runtime/negotiation/locked_plan.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

// A published count: the number of the process set (20 bits) and of its plan (11 bits), whether the
// count is the last one, and the count.
constexpr int kEpochBits = 11;
constexpr int kStampShift = 33;
constexpr std::uint64_t kLast = std::uint64_t{1} << 32;

/// How long a list may be incomplete while a caller waits here. The caller may wait for a call in
/// it before it makes the others.
constexpr std::chrono::milliseconds kPatience{2};
/// How long anything else may wait before rank 0 hears of it.
constexpr std::chrono::seconds kLongPatience{1};

}  // namespace

std::uint64_t LockedPlan::stamp() const {
  return std::uint64_t{communicator_.id()} << kEpochBits | (epoch_ & ((1U << kEpochBits) - 1));
}

std::optional<LockedPlan::Published> LockedPlan::published_by(std::size_t rank) const {
  const std::uint64_t word = segments_[rank]->plan.load(std::memory_order_seq_cst);
  if (word >> kStampShift != stamp()) return std::nullopt;
  return Published{static_cast<std::uint32_t>(word), (word & kLast) != 0};
}

bool LockedPlan::has_counted(std::size_t rank, std::uint32_t lists) const {
  const auto count = published_by(rank);
  return count && reaches(count->lists, lists);
}

bool LockedPlan::has_left(std::size_t rank) const {
  const auto count = published_by(rank);
  return count && count->is_last;
}

void LockedPlan::lock(SlotLists lists) {
  ++epoch_;
  state_ = State::kLocked;
  ready_ = agreed_ = {};
  steps_ = seen_ = calls_ = in_part_ = 0;
  is_waited_for_ = false;
  places_.clear();
  lists_.clear();
  for (SlotsBySteps& by_step : lists) {
    List list;
    for (SlotsOfStep& some : by_step) {
      if (some.step > 0) ++some.step;
      some.slots.for_each([&](std::uint32_t slot) {
        if (slot >= places_.size()) places_.resize(slot + 1);
        places_[slot] = {static_cast<std::uint32_t>(lists_.size()), some.step};
        list.slots.insert(slot);
        ++list.missing;
      });
    }
    list.by_step = std::move(by_step);
    lists_.push_back(std::move(list));
  }
  publish(0);
}

bool LockedPlan::add(std::uint32_t slot, std::uint64_t step, Clock::time_point now) {
  if (slot >= places_.size() || places_[slot].list == Place::kNowhere) return false;
  Place& place = places_[slot];
  if (step != 0 && step != place.step) return false;
  if (place.step > 0) ++place.step;
  ++calls_;
  if (in_part_++ == 0) since_ = now;
  --lists_[place.list].missing;
  return true;
}

void LockedPlan::advance(Count& count) const {
  ++count.lists;
  if (++count.next == lists_.size()) count.next = 0;
}

// Sequentially consistent, as are all looks at counts and at who is asleep: of two ranks that
// publish at once, one sees that all have counted a list. A rank that falls asleep sees a count, or
// its publisher sees it asleep.
void LockedPlan::publish(std::uint32_t before) {
  const bool is_last = state_ == State::kLeaving;
  segments_[own()]->plan.store(stamp() << kStampShift | (is_last ? kLast : 0) | ready_.lists,
                               std::memory_order_seq_cst);
  const auto all = [&] {
    for (std::size_t rank = 0; rank < segments_.size(); ++rank)
      if (rank != own() && !has_counted(rank, before + 1)) return false;
    return true;
  };
  if (!is_last && (ready_.lists == before || !all())) return;
  for (std::size_t rank = 0; rank < segments_.size(); ++rank) {
    if (rank == own() || !segments_[rank]->plan_asleep.load(std::memory_order_seq_cst)) continue;
    // Best effort: a rank that no message reaches soon looks again by itself.
    static_cast<void>(control_plane_.send(static_cast<int>(rank), MessageKind::kDoorbell, {}));
  }
}

void LockedPlan::leave(Clock::time_point now) {
  if (!is_locked()) return;
  state_ = State::kLeaving;
  since_ = now;
  publish(ready_.lists);
}

bool LockedPlan::any_left() const {
  for (std::size_t rank = 0; rank < segments_.size(); ++rank)
    if (has_left(rank)) return true;
  return false;
}

bool LockedPlan::all_left() const {
  if (state_ != State::kLeaving) return false;
  for (std::size_t rank = 0; rank < segments_.size(); ++rank)
    if (!has_left(rank)) return false;
  return true;
}

std::optional<LockedPlan::Clock::time_point> LockedPlan::due() const {
  if (!is_locked() || !has_calls()) return std::nullopt;
  return since_ + (is_waited_for_ ? Clock::duration(kPatience) : Clock::duration(kLongPatience));
}

bool LockedPlan::should_leave(Clock::time_point now) const {
  if (!is_locked()) return false;
  const auto when = due();
  return any_left() || (when && now >= *when);
}

const SlotSet* LockedPlan::next() {
  if (!is_on() || ready_.lists == agreed_.lists) return nullptr;
  for (; seen_ < segments_.size(); ++seen_) {
    if (seen_ != own() && !has_counted(seen_, agreed_.lists + 1)) return nullptr;
  }
  return &lists_[agreed_.next].slots;
}

void LockedPlan::take() {
  List& list = lists_[agreed_.next];
  list.missing = list.slots.size();
  calls_ -= list.missing;
  for (SlotsOfStep& some : list.by_step)
    if (some.step > 0) ++some.step;
  if (agreed_.next == 0) ++steps_;
  advance(agreed_);
  seen_ = 0;
}

void LockedPlan::end() { state_ = State::kOff; }

bool LockedPlan::fall_asleep() {
  if (!is_on()) return true;
  asleep_ = true;
  segments_[own()]->plan_asleep.store(true, std::memory_order_seq_cst);
  return next() == nullptr && !all_left() && !(is_locked() && any_left());
}

void LockedPlan::wake_up() {
  if (!asleep_) return;
  asleep_ = false;
  segments_[own()]->plan_asleep.store(false, std::memory_order_relaxed);
}

std::optional<LockedPlan::Clock::time_point> LockedPlan::leaving_since() const {
  return state_ == State::kLeaving ? std::optional(since_) : std::nullopt;
}

std::vector<int> LockedPlan::others_in_it() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < segments_.size(); ++rank)
    if (!has_left(rank)) ranks.push_back(communicator_.ranks()[rank]);
  return ranks;
}

}  // namespace kolo
