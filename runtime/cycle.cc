#include "runtime/cycle.h"

#include "runtime/base/check.h"
#include "runtime/fusion/fusion_plan.h"
#include "runtime/submission/prepare.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

// Rank 0 decides as soon as fewer than this many operations run that it has decided on: what
// becomes ready meanwhile gathers, so that fusion grows with the load and an idle link never waits.
// The ordered door's may wait for a rank that waits for the decision.
constexpr std::size_t kBusyOperations = 2;
// Operations that run at once; each holds one fusion buffer at most.
constexpr std::size_t kMaxRunning = HostWindow::kSlots;
// Of the ordered door. Ranks come to the two doors' operations in different orders: those of one
// would fill one rank while those of the other fill another, and each wait for the other. So one
// place is the named door's, whose operations always end then, and make room for the others.
constexpr std::size_t kMaxOrdered = kMaxRunning - 1;

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
      links_(links),
      config_(config),
      log_(log),
      trace_(timeline),
      arena_(transport, &devices),
      watch_(world_.world(), log),
      heartbeat_(world_.size(), std::chrono::seconds(config.heartbeat_timeout_s)),
      next_check_(Clock::now()) {}

bool Cycle::step() {
  if (world_.abort().raised()) return false;
  bool moved = drain();            // submission: what threads have handed in
  moved |= announce();             // negotiation: tell rank 0 what is ready here
  moved |= transport_.progress();  // transport: bytes and messages move
  moved |= decide();               // negotiation: rank 0 tells all what is ready everywhere
  moved |= plan();                 // fusion: which tensors travel together
  moved |= start();                // collectives: a schedule for each
  moved |= advance();              // execution: run what is ready
  moved |= complete();             // completion: hand the results back
  check_health();
  if (failure_) fail();
  return moved;
}

template <class Stage>
bool Cycle::for_each_group(Stage&& stage) {
  bool moved = false;
  // By index: a stage may add a group, which is the last one then.
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
      if (entry->signature.kind == OperationKind::kReceive) greet(entry->signature.root);
      note(group.point_to_point.add(std::move(entry)));
      continue;
    }
    if (!entry->complaint.empty()) {
      refuse(group, std::move(entry));
      continue;
    }
    PlannedOperation operation{Door::kOrdered, group.next_sequence(Door::kOrdered)};
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
    // Now that the ordered calls before it have their numbers.
    join->signature.shape = {static_cast<std::int64_t>(group.calls())};
    group.controller.add(std::move(join));
  }
  return moved;
}

// It takes its number: the calls after it would else meet others of the other ranks.
void Cycle::refuse(Group& group, EntryPtr entry) {
  const std::uint64_t sequence = group.next_sequence(Door::kOrdered);
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
    if (group.has_planned(Door::kNamed) || group.running_of(Door::kNamed) >= kBusyOperations)
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
    PlannedOperation operation{Door::kNamed, group.next_sequence(Door::kNamed)};
    operation.list = lists_planned_;
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
                      group.next_sequences[static_cast<std::size_t>(Door::kNamed)]};
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
  if (!group.joined || group.done_below(Door::kNamed) < group.joined->after) return;
  const EntryPtr entry = std::move(group.joined->entry);
  Outcome outcome = std::move(group.joined->outcome);
  group.joined.reset();
  finish(group, *entry, {}, std::move(outcome));
}

void Cycle::begin(Group& group, PointToPoint::Settled settled) {
  if (settled.error) return finish(group, *settled.entry, *std::move(settled.error), {});
  PlannedOperation operation{Door::kPointToPoint, settled.sequence};
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
  // At once, whatever else runs: the other rank does the same, and neither waits for a place.
  auto running = take_idle_operation(group);
  note(running->start(std::move(operation)));
  group.running.push_back(std::move(running));
}

bool Cycle::start() {
  bool moved = settle_costs();
  moved |= for_each_group([&](Group& group) {
    // First, before anything runs that may be all this rank does.
    const bool told = tell_of_slots(group);
    return start(group) || told;
  });
  return moved;
}

bool Cycle::start(Group& group) {
  bool moved = false;
  // Messages hold no slot of a window.
  while (group.running.size() - group.running_of(Door::kPointToPoint) < kMaxRunning) {
    // The first, but that the ordered door's do not keep the named door's from the last place.
    const bool ordered_may = group.running_of(Door::kOrdered) < kMaxOrdered;
    const auto next = std::find_if(
        group.planned.begin(), group.planned.end(),
        [&](const PlannedOperation& plan) { return ordered_may || plan.door != Door::kOrdered; });
    if (next == group.planned.end() || !may_begin(group, *next)) break;
    const AllreducePolicy* const policy = policy_of(group, *next);
    auto operation = take_idle_operation(group);
    trace_.starting(*next);
    Status status = operation->start(std::move(*next), policy);
    group.planned.erase(next);
    if (!status.ok()) note(std::move(status));
    group.running.push_back(std::move(operation));
    if (group.running.size() > 1)
      for (const auto& running : group.running) running->share();
    moved = true;
  }
  return moved;
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
    if (failure_ || clash || !operation->handed_in()) continue;
    if (!operation->status().ok()) {
      Error error = operation->status().error();
      error.message = fmt::format("{}: {}", operation->describe(), error.message);
      if (operation->door() == Door::kOrdered && error.code == ErrorCode::kMismatch) {
        clash = std::move(error);
      } else {
        note_failure({std::move(error)});
      }
      continue;
    }
    if (!operation->handed_out()) {
      hand_out(group, *operation);
      if (operation->door() == Door::kOrdered) ++ended_calls;
      moved = true;
    }
    if (!operation->done()) continue;  // its memory is in use on the accelerator
    static_cast<void>(operation->finish());
    group.idle.push_back(std::move(operation));
    moved = true;
  }
  std::erase(group.running, nullptr);
  if (clash) {
    // What nobody takes of a call before tells more than what came of it.
    check_messages(group);
    note_failure({*std::move(clash)});
  }
  if (moved) end_join(group);
  if (ended_calls > group.calls_before_look) check_messages(group);
  group.calls_before_look -= std::min(ended_calls, group.calls_before_look);
  return moved;
}

void Cycle::hand_out(Group& group, Operation& operation) {
  trace_.ended(group, operation, {});
  note_time(group, operation);
  const PlannedOperation& plan = operation.plan();
  // Before its waiters know: they may remove the set at once.
  if (plan.door == Door::kOrdered) {
    group.recent_calls.add(plan.sequence, operation.call());
    group.ordered.finish_one();
  }
  if (plan.door == Door::kNamed) group.table.release(plan.entries);
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const Entry& entry = *plan.entries[i];
    if (entry.work == nullptr) continue;  // lent to the others
    if (plan.door == Door::kPointToPoint) group.ordered.finish_message();
    const bool memory_lacked =
        entry.allocate && entry.output == nullptr && plan.layout.output_elements > 0;
    Status status = memory_lacked ? no_memory(entry, plan.layout) : Status();
    trace_.finished(group, entry, status);
    entry.work->complete(std::move(status), {.contributors = plan.contributors[i],
                                             .participants = plan.participants,
                                             .received_splits = plan.layout.received,
                                             .on_device = operation.device_event()});
  }
  operation.forget_works();
}

void Cycle::finish(Group& group, const Entry& entry, Status status, Outcome outcome) {
  if (entry.work == nullptr) return;  // lent to the others
  trace_.finished(group, entry, status);
  hand_back(group, entry, std::move(status), std::move(outcome));
}

void Cycle::hand_back(Group& group, const Entry& entry, Status status, Outcome outcome) {
  // First the name, then the waiter: it may submit the next one at once.
  if (is_message(entry)) {
    group.ordered.finish_message();
  } else {
    group.table.release(entry.name);
  }
  entry.work->complete(std::move(status), std::move(outcome));
}

std::unique_ptr<Operation> Cycle::take_idle_operation(Group& group) {
  if (group.idle.empty()) {
    return std::make_unique<Operation>(group.communicator, transport_, device_, arena_, window_,
                                       devices_, group.nccl, group.slots, group.one_shot,
                                       schedules_, links_, config_, trace_.timeline());
  }
  auto operation = std::move(group.idle.back());
  group.idle.pop_back();
  return operation;
}

}  // namespace kolo
