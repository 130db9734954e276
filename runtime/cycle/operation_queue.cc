#include "runtime/cycle/operation_queue.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

// Operations that run at once; each holds at most one slot.
constexpr std::size_t kMaxRunning = HostWindow::kSlots;
// In-order operations among them. Ranks reach the operations of the two modes in different orders:
// those of one mode would fill one rank, those of the other mode another rank, and each would wait
// for the other. So one slot is kept for negotiated operations, which then always end and make
// room.
constexpr std::size_t kMaxInOrder = kMaxRunning - 1;

}  // namespace

std::uint64_t OperationQueue::done_below(SubmissionMode mode) const {
  std::uint64_t done = numbered(mode);
  for (const auto& operation : running_) {
    // Once its Works are complete, only this rank's device still works on it.
    if (operation->mode() == mode && !operation->works_completed())
      done = std::min(done, operation->sequence());
  }
  for (const PlannedOperation& operation : planned_)
    if (operation.mode == mode) done = std::min(done, operation.sequence);
  return done;
}

bool OperationQueue::start_planned(CycleContext& context) {
  bool moved = false;
  // Messages hold no slot.
  while (running_.size() - running_of(SubmissionMode::kPointToPoint) < kMaxRunning) {
    // The first one, but in-order operations leave the last slot to negotiated ones.
    const bool in_order_may = running_of(SubmissionMode::kInOrder) < kMaxInOrder;
    const auto next =
        std::find_if(planned_.begin(), planned_.end(), [&](const PlannedOperation& plan) {
          return in_order_may || plan.mode != SubmissionMode::kInOrder;
        });
    if (next == planned_.end() || !may_start(context, *next)) break;
    PlannedOperation plan = std::move(*next);
    planned_.erase(next);
    start(context, std::move(plan));
    moved = true;
  }
  return moved;
}

void OperationQueue::start_message(CycleContext& context, PlannedOperation operation) {
  start(context, std::move(operation));
}

bool OperationQueue::may_start(const CycleContext& context, const PlannedOperation& plan) const {
  return group_.slots.settled() &&
         (!plan.signature().on_device ||
          context.services.devices.may_take_slot(group_.slots.partition()));
}

void OperationQueue::start(CycleContext& context, PlannedOperation plan) {
  if (idle_.empty()) idle_.push_back(std::make_unique<Operation>(context.services, group_));
  running_.push_back(std::move(idle_.back()));
  idle_.pop_back();
  context.trace.starting(plan);
  context.failures.note(
      running_.back()->start(std::move(plan), resources(context), context.policy()));
}

const Resources& OperationQueue::resources(CycleContext& context) {
  if (settled_resources_) return *settled_resources_;
  Resources now = resources_of(group_, context.services.window, context.services.devices);
  if (!group_.slots.settled()) return early_resources_ = std::move(now);
  now.version = ++context.versions;
  return settled_resources_.emplace(std::move(now));
}

bool OperationQueue::advance() {
  bool moved = false;
  for (const auto& operation : running_) moved |= operation->advance();
  return moved;
}

bool OperationQueue::recycle_done() {
  bool moved = false;
  for (auto& operation : running_) {
    if (!operation->works_completed() || !operation->done()) continue;
    static_cast<void>(operation->finish());
    idle_.push_back(std::move(operation));
    moved = true;
  }
  std::erase(running_, nullptr);
  return moved;
}

std::vector<EntryPtr> OperationQueue::take_planned() {
  std::vector<EntryPtr> entries;
  for (PlannedOperation& operation : planned_)
    for (EntryPtr& entry : operation.entries) entries.push_back(std::move(entry));
  planned_.clear();
  return entries;
}

std::size_t OperationQueue::running_of(SubmissionMode mode) const {
  const auto is_of = [mode](const auto& operation) { return operation->mode() == mode; };
  return static_cast<std::size_t>(std::count_if(running_.begin(), running_.end(), is_of));
}

bool OperationQueue::has_planned(SubmissionMode mode) const {
  const auto is_of = [mode](const PlannedOperation& operation) { return operation.mode == mode; };
  return std::any_of(planned_.begin(), planned_.end(), is_of);
}

std::optional<OperationQueue::Clock::time_point> OperationQueue::held_since(Clock::time_point now) {
  const PlannedOperation* const first = held();
  if (first == nullptr || !group_.slots.settled()) {
    held_.reset();
    return std::nullopt;
  }
  if (!held_ || held_->mode != first->mode || held_->sequence != first->sequence)
    held_ = {first->mode, first->sequence, now};
  return held_->since;
}

bool OperationQueue::moves_collectives() const {
  return std::any_of(running_.begin(), running_.end(), [](const auto& operation) {
    return operation->mode() != SubmissionMode::kPointToPoint && !operation->works_completed();
  });
}

bool OperationQueue::waits_for_device() const {
  return std::any_of(running_.begin(), running_.end(),
                     [](const auto& operation) { return operation->waits_for_device(); });
}

}  // namespace kolo
