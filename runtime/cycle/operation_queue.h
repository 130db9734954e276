// OperationQueue: the operations of a process set, from their numbers to their end. Planned ones
// start in order; several run at once, each with a slot of the window as scratch. Member of Group;
// token holder only.
#pragma once

#include "runtime/cycle/context.h"
#include "runtime/operation/operation.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace kolo {

class OperationQueue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit OperationQueue(const GroupServices& group) : group_(group) {}

  /// Takes the next number of a mode.
  std::uint64_t take_sequence(SubmissionMode mode) { return next_[index(mode)]++; }
  /// Number of operations of a mode that have their number.
  std::uint64_t numbered(SubmissionMode mode) const { return next_[index(mode)]; }
  /// All operations of that mode with lower numbers are done.
  std::uint64_t done_below(SubmissionMode mode) const;

  /// The set's resources have changed; later operations start with the new ones.
  void forget_resources() { settled_resources_.reset(); }
  void plan(PlannedOperation operation) { planned_.push_back(std::move(operation)); }
  /// Starts planned operations while slots are free; true if any.
  bool start_planned(CycleContext& context);
  /// Starts a message at once: it needs no slot.
  void start_message(CycleContext& context, PlannedOperation operation);
  bool advance();
  /// Takes operations that are done out of `running()`, for reuse; true if any.
  bool recycle_done();
  /// Takes all operations, in whatever state. `ended` is told of each running one whose Works are
  /// not complete.
  template <class Ended>
  std::vector<EntryPtr> take_all(Ended&& ended);
  /// Takes the entries of operations that have not started.
  std::vector<EntryPtr> take_planned();

  std::span<const std::unique_ptr<Operation>> running() const { return running_; }
  bool empty() const { return running_.empty() && planned_.empty(); }
  std::size_t running_of(SubmissionMode mode) const;
  bool has_planned(SubmissionMode mode) const;
  /// A collective still moves data between ranks; KOLO_OPERATION_TIMEOUT bounds it.
  bool moves_collectives() const;
  bool waits_for_device() const;
  /// The first planned operation, if nothing runs that it could wait for; else null.
  const PlannedOperation* held() const {
    return running_.empty() && !planned_.empty() ? &planned_.front() : nullptr;
  }
  /// Since when held() has been the same, as far as calls of this method tell; nothing if null.
  std::optional<Clock::time_point> held_since(Clock::time_point now);
  const PlannedOperation* first_planned() const {
    return planned_.empty() ? nullptr : &planned_.front();
  }

 private:
  static std::size_t index(SubmissionMode mode) { return static_cast<std::size_t>(mode); }
  bool may_start(const CycleContext& context, const PlannedOperation& plan) const;
  void start(CycleContext& context, PlannedOperation plan);
  const Resources& resources(CycleContext& context);

  const GroupServices& group_;
  std::deque<PlannedOperation> planned_;
  std::vector<std::unique_ptr<Operation>> running_;
  std::vector<std::unique_ptr<Operation>> idle_;  ///< for reuse
  std::array<std::uint64_t, kSubmissionModeCount> next_ = {};
  std::optional<Resources> settled_resources_;
  struct Held {
    SubmissionMode mode;
    std::uint64_t sequence;
    Clock::time_point since;
  };
  std::optional<Held> held_;
  Resources early_resources_;  ///< for messages, which do not wait for the slots
};

template <class Ended>
std::vector<EntryPtr> OperationQueue::take_all(Ended&& ended) {
  std::vector<EntryPtr> entries;
  for (const auto& operation : running_) {
    if (!operation->works_completed()) ended(*operation);
    for (EntryPtr& entry : operation->finish().entries) entries.push_back(std::move(entry));
  }
  running_.clear();
  for (EntryPtr& entry : take_planned()) entries.push_back(std::move(entry));
  return entries;
}

}  // namespace kolo
