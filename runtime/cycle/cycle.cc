#include "runtime/cycle/cycle.h"

#include "runtime/base/check.h"
#include "runtime/fusion/fusion_plan.h"
#include "runtime/submission/prepare.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

// Rank 0 decides only while fewer than this many operations run that it has decided on. Meanwhile
// ready tensors gather, so fusion grows with the load and an idle link never waits. In-order
// operations do not count: they may wait for a rank that waits for the decision.
constexpr std::size_t kBusyOperations = 2;
// Operations that run at once; each holds at most one fusion buffer.
constexpr std::size_t kMaxRunning = HostWindow::kSlots;
// In-order operations that run at once. Ranks reach in-order and negotiated operations in different
// orders. If one mode filled one rank and the other mode another rank, each rank would wait for the
// other. So one slot is reserved for negotiated operations, which always end and then make room.
constexpr std::size_t kMaxInOrder = kMaxRunning - 1;

Error no_memory(const Entry& entry, const RowLayout& layout) {
  return KOLO_ERROR(kOutOfMemory,
                    "{} '{}': there is no memory for its output of shape {}; the other ranks have "
                    "theirs",
                    to_string(entry.signature.kind), entry.name, to_string(layout.output_shape));
}

}  // namespace

Cycle::Cycle(GroupRegistry& groups, Transport& transport, const Device& device, HostWindow& window,
             DeviceWindow& devices, const LinkCosts& links, const Config& config, const Log& log,
             Timeline& timeline)
    : groups_(groups),
      world_(groups.world().communicator),
      transport_(transport),
      device_(device),
      window_(window),
      devices_(devices),
      config_(config),
      log_(log),
      trace_(timeline),
      arena_(transport, &devices),
      services_{transport, device, window, devices, arena_, schedules_, timeline},
      links_(links),
      watch_(world_.world(), log),
      heartbeat_(world_.size(), std::chrono::seconds(config.heartbeat_timeout_s)),
      next_check_(Clock::now()) {}

bool Cycle::step() {
  if (world_.abort().raised()) return false;
  bool moved = drain();            // submission: what threads have submitted
  moved |= announce();             // negotiation: tell rank 0 what is ready here
  moved |= transport_.progress();  // transport: bytes and messages move
  moved |= decide();               // negotiation: rank 0 tells all what is ready everywhere
  moved |= plan();                 // fusion: which tensors travel together
  moved |= start();                // collectives: a schedule for each
  moved |= advance();              // execution: run what is ready
  moved |= complete();             // completion: complete the Works
  check_health();
  if (failure_) fail();
  return moved;
}

template <class Stage>
bool Cycle::for_each_group(Stage&& stage) {
  bool moved = false;
  // By index: a stage may add a group at the end.
  for (std::size_t i = 0; i < groups_.all().size(); ++i) {
    Group& group = *groups_.all()[i];
    if (group.is_member()) moved |= stage(group);
  }
  return moved;
}

bool Cycle::drain() {
  return for_each_group([&](Group& group) { return drain(group); });
}

bool Cycle::drain(Group& group) {
  drained_.clear();
  group.flush |= group.table.drain(drained_);
  trace_.drained(drained_);
  bool moved = !drained_.empty();
  EntryPtr join;
  for (EntryPtr& entry : drained_) {
    if (entry->signature.kind == OperationKind::kJoin) {
      join = std::move(entry);
    } else {
      group.controller.add(std::move(entry));
    }
  }

  drained_.clear();
  group.ordered.drain(drained_);
  trace_.drained(drained_);
  moved |= !drained_.empty();
  for (EntryPtr& entry : drained_) {
    if (is_message(*entry)) {
      if (entry->signature.kind == OperationKind::kReceive) open_link(entry->signature.root);
      note(group.point_to_point.add(std::move(entry)));
      continue;
    }
    if (!entry->complaint.empty()) {
      refuse(group, std::move(entry));
      continue;
    }
    PlannedOperation operation{SubmissionMode::kInOrder,
                               group.next_sequence(SubmissionMode::kInOrder)};
    operation.participants = group.communicator.size();
    operation.contributors = {operation.participants};
    operation.meets_first = group.meets_first(entry->signature);
    // All ranks make the same call, so they have the same splits.
    const auto ranks = static_cast<std::size_t>(group.communicator.size());
    operation.layout = layout_of(
        entry->signature,
        is_row_wise(entry->signature.kind) ? SplitTable(ranks, entry->splits) : SplitTable(),
        group.communicator);
    operation.entries.push_back(std::move(entry));
    operation.before = group.history.bits();
    group.history.add(call_of(operation, group.communicator));
    trace_.agreed(operation.entries);
    group.planned.push_back(std::move(operation));
  }
  if (join) {
    // Only now do the ordered calls before the join have their numbers.
    join->signature.shape = {static_cast<std::int64_t>(group.calls())};
    group.controller.add(std::move(join));
  }
  return moved;
}

// A refused call takes a number, too: otherwise later calls would meet other calls of other ranks.
void Cycle::refuse(Group& group, EntryPtr entry) {
  const std::uint64_t sequence = group.next_sequence(SubmissionMode::kInOrder);
  group.history.add(kRefusedCall);
  Error error = refusal_of(*entry, world_.rank());
  group.recent_calls.add_refused(sequence, error.message);
  trace_.finished(group, *entry, error);
  group.ordered.finish_one();
  entry->work->complete(std::move(error), {});
}

bool Cycle::announce() {
  const auto now = Clock::now();
  return for_each_group([&](Group& group) {
    auto announced = group.controller.announce(now, std::exchange(group.flush, false));
    if (!announced.ok()) note(std::move(announced).error());
    return announced.ok() && *announced;
  });
}

bool Cycle::decide() {
  return for_each_group([&](Group& group) {
    if (group.has_planned(SubmissionMode::kNegotiated) ||
        group.running_of(SubmissionMode::kNegotiated) >= kBusyOperations)
      return false;
    auto decided = group.controller.decide();
    if (!decided.ok()) note(std::move(decided).error());
    return decided.ok() && *decided;
  });
}

bool Cycle::plan() {
  return for_each_group([&](Group& group) {
    bool moved = false;
    while (group.controller.take_agreed(agreed_)) {
      plan_list(group);
      if (group.communicator.id() == 0) ++lists_planned_;
      moved = true;
    }
    for (auto& settled : group.point_to_point.take_settled()) {
      begin(group, std::move(settled));
      moved = true;
    }
    return moved;
  });
}

void Cycle::plan_list(Group& group) {
  trace_.agreed(agreed_);
  std::vector<const Response*> responses;
  responses.reserve(agreed_.size());
  for (const Agreed& agreed : agreed_) responses.push_back(agreed.response.get());
  const FusionLimits limits{static_cast<std::uint64_t>(config_.fusion_threshold),
                            static_cast<std::uint64_t>(config_.fusion_max_tensor)};
  for (const FusedGroup& fused : plan_fusion(responses, limits)) {
    const Response& first = *agreed_[fused.front()].response;
    PlannedOperation operation{SubmissionMode::kNegotiated,
                               group.next_sequence(SubmissionMode::kNegotiated)};
    operation.participants = first.participants;
    operation.entries.reserve(fused.size());
    operation.contributors.reserve(fused.size());
    for (const std::size_t index : fused) {
      operation.entries.push_back(std::move(agreed_[index].entry));
      operation.contributors.push_back(agreed_[index].response->contributors);
    }
    if (fused.size() == 1) {
      operation.layout = layout_of(first.signature, first.splits, group.communicator);
      Entry& entry = *operation.entries.front();
      if (entry.allocate) entry.output = entry.allocate(operation.layout.output_shape);
    }
    group.planned.push_back(std::move(operation));
  }
  for (Agreed& agreed : agreed_) {
    if (!agreed.response->runs()) conclude(group, agreed);
  }
}

void Cycle::conclude(Group& group, Agreed& agreed) {
  const Response& response = *agreed.response;
  if (response.error) {
    if (response.signature.kind == OperationKind::kJoin) group.table.restart_unnamed();
    const Signature& own = agreed.entry->signature;
    if (own.kind == OperationKind::kRemoveProcessSet && agreed.entry->work != nullptr)
      groups_.reopen(static_cast<std::uint32_t>(own.root));
    return finish(group, *agreed.entry, *response.error, {.value = response.result});
  }
  Outcome outcome{.contributors = response.contributors,
                  .participants = response.participants,
                  .value = response.result};
  switch (response.signature.kind) {
    case OperationKind::kJoin:
      group.table.restart_unnamed();
      ++group.joins;
      group.joined = {std::move(agreed.entry), std::move(outcome),
                      group.next_sequences[static_cast<std::size_t>(SubmissionMode::kNegotiated)]};
      return end_join(group);
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet: {
      auto changed = change_groups(response.signature);
      if (!changed.ok()) return finish(group, *agreed.entry, std::move(changed).error(), {});
      outcome.value = *changed;
      break;
    }
    case OperationKind::kAllreduce:
    case OperationKind::kBroadcast:
    case OperationKind::kAllgather:
    case OperationKind::kAlltoall:
    case OperationKind::kReduceScatter:
    case OperationKind::kGather:
    case OperationKind::kScatter:
    case OperationKind::kBarrier:
    case OperationKind::kSend:
    case OperationKind::kReceive:
      break;
  }
  finish(group, *agreed.entry, {}, std::move(outcome));
}

void Cycle::end_join(Group& group) {
  if (!group.joined || group.done_below(SubmissionMode::kNegotiated) < group.joined->after) return;
  const EntryPtr entry = std::move(group.joined->entry);
  Outcome outcome = std::move(group.joined->outcome);
  group.joined.reset();
  finish(group, *entry, {}, std::move(outcome));
}

void Cycle::begin(Group& group, PointToPoint::Settled settled) {
  if (settled.error) return finish(group, *settled.entry, *std::move(settled.error), {});
  PlannedOperation operation{SubmissionMode::kPointToPoint, settled.sequence};
  operation.participants = 1;
  operation.contributors = {1, 1};
  operation.layout = layout_of(settled.entry->signature, {}, group.communicator);
  operation.entries.push_back(std::move(settled.entry));
  if (settled.own_send) {
    operation.entries.front()->input = settled.own_send->input;
    operation.layout.input_elements = operation.layout.output_elements;
    operation.entries.push_back(std::move(settled.own_send));
  }
  trace_.agreed(operation.entries);
  trace_.starting(operation);
  // Starts at once, whatever else runs: the other rank does the same, so neither waits for a slot.
  auto running = take_idle_operation(group);
  note(start_operation(group, *running, std::move(operation)));
  group.running.push_back(std::move(running));
}

bool Cycle::start() {
  return for_each_group([&](Group& group) {
    // First, before an operation starts that may be all this rank ever does.
    const bool told = tell_of_slots(group);
    return start(group) || told;
  });
}

bool Cycle::start(Group& group) {
  bool moved = false;
  // Messages hold no slot of a window.
  while (group.running.size() - group.running_of(SubmissionMode::kPointToPoint) < kMaxRunning) {
    // The first planned operation; but in-order operations do not take the last slot from
    // negotiated ones.
    const bool in_order_may = group.running_of(SubmissionMode::kInOrder) < kMaxInOrder;
    const auto next =
        std::find_if(group.planned.begin(), group.planned.end(), [&](const PlannedOperation& plan) {
          return in_order_may || plan.mode != SubmissionMode::kInOrder;
        });
    if (next == group.planned.end() || !may_begin(group, *next)) break;
    auto operation = take_idle_operation(group);
    trace_.starting(*next);
    Status status = start_operation(group, *operation, std::move(*next));
    group.planned.erase(next);
    if (!status.ok()) note(std::move(status));
    group.running.push_back(std::move(operation));
    moved = true;
  }
  return moved;
}

Status Cycle::start_operation(Group& group, Operation& operation, PlannedOperation plan) {
  if (!policy_) policy_ = policy_of(links_, config_);
  return operation.start(std::move(plan), group.resources(window_, devices_), *policy_);
}

bool Cycle::may_begin(const Group& group, const PlannedOperation& plan) const {
  return group.slots.settled() &&
         (!plan.signature().on_device || devices_.may_take_slot(group.slots.partition()));
}

bool Cycle::advance() {
  return for_each_group([](Group& group) {
    bool moved = false;
    for (auto& operation : group.running) moved |= operation->advance();
    return moved;
  });
}

bool Cycle::complete() {
  const bool moved = for_each_group([&](Group& group) { return complete(group); });
  groups_.drop_removed();
  return moved;
}

bool Cycle::complete(Group& group) {
  bool moved = false;
  std::size_t ended_calls = 0;
  std::optional<Error> clash;
  for (auto& operation : group.running) {
    if (failure_ || clash || !operation->enqueued()) continue;
    if (!operation->status().ok()) {
      Error error = operation->status().error();
      error.message = fmt::format("{}: {}", operation->describe(), error.message);
      if (operation->mode() == SubmissionMode::kInOrder && error.code == ErrorCode::kMismatch) {
        clash = std::move(error);
      } else {
        note_failure({std::move(error)});
      }
      continue;
    }
    if (!operation->works_completed()) {
      complete_works(group, *operation);
      if (operation->mode() == SubmissionMode::kInOrder) ++ended_calls;
      moved = true;
    }
    if (!operation->done()) continue;  // the accelerator still uses its memory
    static_cast<void>(operation->finish());
    group.idle.push_back(std::move(operation));
    moved = true;
  }
  std::erase(group.running, nullptr);
  if (clash) {
    // An unclaimed message of an earlier call says more than the failure of this one.
    check_messages(group);
    note_failure({*std::move(clash)});
  }
  if (moved) end_join(group);
  if (ended_calls > group.calls_before_look) check_messages(group);
  group.calls_before_look -= std::min(ended_calls, group.calls_before_look);
  return moved;
}

void Cycle::complete_works(Group& group, Operation& operation) {
  trace_.ended(group, operation, {});
  const PlannedOperation& plan = operation.plan();
  // Before the waiting threads know: they may remove the set at once.
  if (plan.mode == SubmissionMode::kInOrder) {
    group.recent_calls.add(plan.sequence, operation.call());
    group.ordered.finish_one();
  }
  if (plan.mode == SubmissionMode::kNegotiated) group.table.release(plan.entries);
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const Entry& entry = *plan.entries[i];
    if (entry.work == nullptr) continue;  // entry of a joined rank that contributes zeros
    if (plan.mode == SubmissionMode::kPointToPoint) group.ordered.finish_message();
    const bool memory_lacked =
        entry.allocate && entry.output == nullptr && plan.layout.output_elements > 0;
    Status status = memory_lacked ? no_memory(entry, plan.layout) : Status();
    trace_.finished(group, entry, status);
    entry.work->complete(std::move(status), {.contributors = plan.contributors[i],
                                             .participants = plan.participants,
                                             .received_splits = plan.layout.received,
                                             .on_device = operation.device_event()});
  }
  operation.drop_works();
}

void Cycle::finish(Group& group, const Entry& entry, Status status, Outcome outcome) {
  if (entry.work == nullptr) return;  // entry of a joined rank that contributes zeros
  trace_.finished(group, entry, status);
  complete_entry(group, entry, std::move(status), std::move(outcome));
}

void Cycle::complete_entry(Group& group, const Entry& entry, Status status, Outcome outcome) {
  // First the name, then the waiting thread, which may submit the next tensor of this name at once.
  if (is_message(entry)) {
    group.ordered.finish_message();
  } else {
    group.table.release(entry.name);
  }
  entry.work->complete(std::move(status), std::move(outcome));
}

std::unique_ptr<Operation> Cycle::take_idle_operation(Group& group) {
  if (group.idle.empty()) {
    return std::make_unique<Operation>(services_, group.services);
  }
  auto operation = std::move(group.idle.back());
  group.idle.pop_back();
  return operation;
}

}  // namespace kolo
