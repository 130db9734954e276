// LockedPlan: how ranks agree on steps that repeat, without rank 0. Rank 0 tells all ranks to lock
// a plan: the lists of the last step, in order. From then on each rank counts in its control
// segment the lists of the plan for which it is ready, step after step. A list is agreed on as soon
// as all ranks have counted it. Every rank then takes it as if rank 0 had told it.
//
// Ranks of a host read each other's counts, without messages. The leaders of hosts exchange what
// their hosts have counted (CountDissemination), and publish what they hear beside their counts.
//
// A rank leaves the plan when it has a call that the plan lacks, or when a list stays incomplete.
// It marks its count as its last one. Ranks that see a last count make theirs the last, too. Once
// all counts are last, the smallest one tells all ranks alike on which lists they have agreed. All
// other calls are negotiated by messages.
//
//   kOff ── lock() ──► kLocked ── leave() ──► kLeaving ── end(), once all_left() ──► kOff
//
// Progress token holder only; owned by the controller.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/memory/plan_neighbours.h"
#include "runtime/negotiation/count_dissemination.h"
#include "runtime/negotiation/slot_set.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

class LockedPlan {
 public:
  using Clock = std::chrono::steady_clock;

  LockedPlan(const Communicator& communicator, ControlPlane& control_plane)
      : communicator_(communicator),
        control_plane_(control_plane),
        dissemination_(communicator, control_plane) {}

  /// Before, no plan is locked.
  void open(PlanNeighbours neighbours);
  bool can_lock() const { return communicator_.size() > 1 && !lines_.empty() && !is_on(); }
  bool is_on() const { return state_ != State::kOff; }
  bool is_locked() const { return state_ == State::kLocked; }

  /// Follows a plan from now on. Precondition: can_lock(); the same call on every rank, after the
  /// same lists.
  void lock(SlotLists lists);
  /// This rank is ready for a call. False if the plan does not expect it. Precondition:
  /// is_locked().
  bool add(std::uint32_t slot, std::uint64_t step, Clock::time_point now);
  /// Counts the lists that are complete here. Calls `counted` for each; true if there are any.
  /// `is_waited_for`: a caller waits for what it has submitted.
  template <class Counted>
  bool count(bool is_waited_for, Clock::time_point now, Counted&& counted);
  /// Makes this rank's count its last one. Does nothing unless is_locked().
  void leave(Clock::time_point now);

  /// Whether this rank has to leave: another one has left, or it has waited for too long.
  bool should_leave(Clock::time_point now) const;
  /// When should_leave() may say so with no other rank's doing; nothing if never.
  std::optional<Clock::time_point> due() const;
  /// On a leader: tells others what its node has counted, if they do not know.
  Status pass_on();
  /// Handles a message of another leader. kInternal if it is malformed or unexpected.
  Status hear(int peer, std::span<const std::byte> payload);
  /// Whether other nodes hear of this rank's node from this rank.
  bool leads() const { return dissemination_.leads(); }
  /// Messages that this rank has sent to other nodes.
  std::uint64_t messages() const { return dissemination_.messages(); }
  /// The next list that all ranks have agreed on, until take(); null if there is none.
  const SlotSet* next();
  void take();
  /// All counts are last. Whatever next() does not return afterwards is not agreed on.
  bool all_left() const;
  void end();
  /// Calls of add() on which the ranks have not agreed yet.
  bool has_calls() const { return calls_ > 0; }
  /// Steps of the plan that all ranks have begun.
  std::uint64_t steps() const { return steps_; }

  /// The driving thread calls both around a block, as Exchange's. False if there is something to
  /// do.
  bool fall_asleep();
  void wake_up();

  /// Since when this rank is leaving.
  std::optional<Clock::time_point> leaving_since() const;
  /// "rank 3, 5": whose counts are not last, in the world.
  std::string others_in_it() const;

 private:
  enum class State : std::uint8_t { kOff, kLocked, kLeaving };
  struct List {
    SlotsBySteps by_step;
    SlotSet slots;
    std::size_t missing = 0;  ///< slots for which this rank is not ready yet
  };
  struct Place {
    static constexpr std::uint32_t kNowhere = UINT32_MAX;
    std::uint32_t list = kNowhere;
    std::uint64_t step = 0;  ///< in which the call is expected; 0: none is stated
  };
  /// A number of lists since lock(), modulo 2^32, and the one that comes next.
  struct Count {
    std::uint32_t lists = 0;
    std::size_t next = 0;
  };
  using Word = std::atomic<std::uint64_t>;

  std::uint64_t stamp() const;
  /// What the word says of this plan: nobody has counted anything, if it is of another plan.
  PlanCount read(const Word& word) const;
  void write(Word& word, const PlanCount& count) const;
  /// What this node's ranks have counted.
  PlanCount counted_here() const;
  bool any_left() const;
  void advance(Count& count) const;
  /// `before`: what this rank had counted.
  void publish(std::uint32_t before);
  void publish_elsewhere();
  void wake_others(std::uint32_t before, bool is_leaving);

  const Communicator& communicator_;
  ControlPlane& control_plane_;
  CountDissemination dissemination_;
  PlanLine by_itself_;
  std::vector<int> ranks_;          ///< this node's; the first is its leader
  std::vector<PlanLine*> lines_;    ///< theirs
  std::vector<const Word*> words_;  ///< their counts, and then that of all other nodes, if any
  std::size_t own_ = 0;             ///< index of this rank's line
  State state_ = State::kOff;
  std::vector<List> lists_;
  std::vector<Place> places_;  ///< by slot
  Count ready_;                ///< lists counted here
  Count agreed_;               ///< lists taken
  std::uint64_t steps_ = 0;
  std::size_t seen_ = 0;          ///< words below this have counted the next list
  std::size_t calls_ = 0;         ///< that wait for agreement
  std::size_t in_part_ = 0;       ///< those of them in lists that are not counted
  bool is_waited_for_ = false;    ///< by a caller that may have submitted one of these
  Clock::time_point since_ = {};  ///< when this rank has last gone on
  bool asleep_ = false;
};

template <class Counted>
bool LockedPlan::count(bool is_waited_for, Clock::time_point now, Counted&& counted) {
  const std::uint32_t before = ready_.lists;
  while (lists_[ready_.next].missing == 0 && ready_.lists - agreed_.lists < lists_.size()) {
    const List& list = lists_[ready_.next];
    in_part_ -= list.slots.size();
    counted(list.by_step);
    advance(ready_);
  }
  if (in_part_ == 0) {
    is_waited_for_ = false;
  } else {
    is_waited_for_ |= is_waited_for;
  }
  if (ready_.lists == before) return false;
  since_ = now;
  publish(before);
  return true;
}

}  // namespace kolo
