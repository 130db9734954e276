#include "runtime/negotiation/locked_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kolo {
namespace {

// A published count: the number of the process set (20 bits) and of its plan (10 bits), whether all
// and whether any of those who have counted make it their last one, and the count.
constexpr int kPlanBits = 10;
constexpr int kStampShift = 34;
constexpr std::uint64_t kAllLeft = std::uint64_t{1} << 33;
constexpr std::uint64_t kAnyLeft = std::uint64_t{1} << 32;

/// How long a list may be incomplete while a caller waits here. The caller may wait for a call in
/// it before it makes the others.
constexpr std::chrono::milliseconds kPatience{2};
/// How long anything else may wait before rank 0 hears of it.
constexpr std::chrono::seconds kLongPatience{1};

}  // namespace

void LockedPlan::open(PlanNeighbours neighbours) {
  const HostLayout& nodes = neighbours.nodes;
  lines_ = std::move(neighbours.lines);
  if (lines_.empty()) lines_ = {&by_itself_};
  ranks_ = nodes.members(nodes.host_of(communicator_.rank()));
  own_ = static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), communicator_.rank()) -
                                  ranks_.begin());
  for (const PlanLine* line : lines_) words_.push_back(&line->counted);
  if (nodes.hosts() > 1) words_.push_back(&lines_.front()->elsewhere);
  dissemination_.open(nodes);
}

std::uint64_t LockedPlan::stamp() const {
  return std::uint64_t{communicator_.id()} << kPlanBits |
         (dissemination_.plan() & ((1U << kPlanBits) - 1));
}

// Sequentially consistent, as are all looks at counts and at who is asleep: of two ranks that
// publish at once, one sees that all have counted a list. A rank that falls asleep sees a count, or
// its publisher sees it asleep.
PlanCount LockedPlan::read(const Word& word) const {
  const std::uint64_t read = word.load(std::memory_order_seq_cst);
  if (read >> kStampShift != stamp()) return {};
  return {static_cast<std::uint32_t>(read), (read & kAnyLeft) != 0, (read & kAllLeft) != 0};
}

void LockedPlan::write(Word& word, const PlanCount& count) const {
  word.store(stamp() << kStampShift | (count.all_left ? kAllLeft : 0) |
                 (count.any_left ? kAnyLeft : 0) | count.lists,
             std::memory_order_seq_cst);
}

PlanCount LockedPlan::counted_here() const {
  PlanCount all = read(*words_.front());
  for (std::size_t i = 1; i < lines_.size(); ++i) all.merge(read(*words_[i]));
  return all;
}

void LockedPlan::lock(SlotLists lists) {
  dissemination_.begin();
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
  if (leads()) publish_elsewhere();
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

void LockedPlan::publish(std::uint32_t before) {
  const bool leaves = state_ == State::kLeaving;
  write(lines_[own_]->counted, {ready_.lists, leaves, leaves});
  wake_others(before, leaves);
}

void LockedPlan::publish_elsewhere() {
  const std::uint32_t before = read(lines_[own_]->elsewhere).lists;
  const PlanCount elsewhere = dissemination_.elsewhere();
  write(lines_[own_]->elsewhere, elsewhere);
  wake_others(before, elsewhere.any_left);
}

/// A count was `before`. Its publisher wakes all who can go on now, and the leader before the
/// others: it tells other nodes.
void LockedPlan::wake_others(std::uint32_t before, bool is_leaving) {
  const auto have_counted = [&](std::size_t words) {
    return is_leaving || std::all_of(words_.begin(), words_.begin() + std::ptrdiff_t(words),
                                     [&](auto* word) { return read(*word).reaches(before + 1); });
  };
  if (!have_counted(lines_.size())) return;
  const std::size_t end = have_counted(words_.size()) ? lines_.size() : 1;
  for (std::size_t i = 0; i < end; ++i) {
    if (i == own_ || !lines_[i]->asleep.load(std::memory_order_seq_cst)) continue;
    // Best effort: a rank that no message reaches soon looks again by itself.
    static_cast<void>(control_plane_.send(ranks_[i], MessageKind::kDoorbell, {}));
  }
}

Status LockedPlan::pass_on() {
  return is_on() && leads() ? dissemination_.tell(counted_here()) : Status();
}

Status LockedPlan::hear(int peer, std::span<const std::byte> payload) {
  KOLO_TRY(dissemination_.hear(peer, payload));
  if (is_on()) publish_elsewhere();
  return {};
}

void LockedPlan::leave(Clock::time_point now) {
  if (!is_locked()) return;
  state_ = State::kLeaving;
  since_ = now;
  publish(ready_.lists);
}

bool LockedPlan::any_left() const {
  return std::any_of(words_.begin(), words_.end(),
                     [this](const Word* word) { return read(*word).any_left; });
}

bool LockedPlan::all_left() const {
  if (state_ != State::kLeaving || (leads() && !dissemination_.told().all_left)) return false;
  return std::all_of(words_.begin(), words_.end(),
                     [this](const Word* word) { return read(*word).all_left; });
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
  for (; seen_ < words_.size(); ++seen_) {
    if (seen_ != own_ && !read(*words_[seen_]).reaches(agreed_.lists + 1)) return nullptr;
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
  lines_[own_]->asleep.store(true, std::memory_order_seq_cst);
  return next() == nullptr && !all_left() && !(is_locked() && any_left()) &&
         !(leads() && dissemination_.told() != counted_here());
}

void LockedPlan::wake_up() {
  if (!asleep_) return;
  asleep_ = false;
  lines_[own_]->asleep.store(false, std::memory_order_relaxed);
}

std::optional<LockedPlan::Clock::time_point> LockedPlan::leaving_since() const {
  return state_ == State::kLeaving ? std::optional(since_) : std::nullopt;
}

std::string LockedPlan::others_in_it() const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < lines_.size(); ++i)
    if (!read(*words_[i]).all_left) ranks.push_back(communicator_.ranks()[std::size_t(ranks_[i])]);
  if (leads()) {
    for (const int rank : dissemination_.behind())
      ranks.push_back(communicator_.ranks()[std::size_t(rank)]);
  }
  return ranks.empty() ? "a rank of another host" : fmt::format("rank {}", fmt::join(ranks, ", "));
}

}  // namespace kolo
