// The costs of links while the cycle runs: rank 0 corrects them by what operations take, and all
// ranks agree from where on other ones count. Progress token holder.
#include "runtime/cycle.h"

namespace kolo {

CostSwitch& Cycle::cost_switch() {
  if (!cost_switch_) {
    const AllreducePolicy policy = allreduce_policy(world_, groups_.world().slots, links_, config_);
    cost_switch_.emplace(policy, world_.size());
    if (world_.rank() == 0 && config_.link_refresh != 0 && LinkRefresh::has_choice(policy))
      link_refresh_.emplace(policy);
  }
  return *cost_switch_;
}

const AllreducePolicy* Cycle::policy_of(const Group& group, const PlannedOperation& plan) {
  if (group.communicator.id() != 0) return nullptr;
  switch (plan.door) {
    case Door::kNamed:
      return &cost_switch().of_list(plan.list);
    case Door::kOrdered:
      return &cost_switch().of_ordered(plan.sequence);
    case Door::kPointToPoint:
      break;
  }
  return nullptr;
}

bool Cycle::may_begin(Group& group, const PlannedOperation& plan) {
  if (!group.slots.settled()) return false;
  if (plan.entries.front()->signature.on_device && !devices_.may_take_slot(group.slots.place()))
    return false;
  return group.communicator.id() != 0 || plan.door != Door::kOrdered ||
         cost_switch().may_begin(plan.sequence);
}

void Cycle::note_time(Group& group, const Operation& operation) {
  if (!link_refresh_ || group.communicator.id() != 0) return;
  if (!operation.choice() || operation.shared() || operation.began_late()) return;
  const std::chrono::duration<double, std::micro> time = Clock::now() - operation.started_at();
  const auto& [algorithm, bytes, partial_width] = *operation.choice();
  link_refresh_->note(algorithm, bytes, partial_width, time.count());
  const auto costs = link_refresh_->take_due();
  if (!costs || !cost_switch().can_propose() || group.departures.any()) return;
  const auto ordered = group.next_sequences[static_cast<std::size_t>(Door::kOrdered)];
  tell_costs(group, MessageKind::kCosts, cost_switch().propose(*costs, ordered));
}

void Cycle::tell_costs(Group& group, MessageKind kind, const std::string& payload) {
  const auto size = static_cast<std::size_t>(world_.size());
  note(tell_others(group, kind, std::vector(size, payload), Abort::kNoCulprit));
}

bool Cycle::settle_costs() {
  if (!cost_switch_ || world_.rank() != 0) return false;
  Group& world = groups_.world();
  const auto settlement = cost_switch_->settle(world.controller.counters().agreements);
  if (!settlement) return false;
  if (link_refresh_) link_refresh_->adopt(*cost_switch_->newest());
  tell_costs(world, MessageKind::kCostsFrom, *settlement);
  return true;
}

void Cycle::leave_costs(Group& group, int rank) {
  if (!cost_switch_) return;
  if (rank == 0) return cost_switch_->withdraw();
  if (world_.rank() != 0) return;
  const auto& progress = *group.departures.progress_of(rank);
  cost_switch_->rank_left(rank, progress.operations[static_cast<std::size_t>(Door::kOrdered)]);
}

Status Cycle::on_cost_message(Group& group, int rank, const Message& message) {
  CostSwitch& costs = cost_switch();
  const bool is_coordinator = world_.rank() == 0;
  bool understood = group.communicator.id() == 0 && is_coordinator != (rank == 0);
  if (understood && message.kind == MessageKind::kCosts && !is_coordinator) {
    const auto ordered = group.next_sequences[static_cast<std::size_t>(Door::kOrdered)];
    const auto answer = costs.hear(message.payload, ordered);
    if (answer) return group.control_plane.send(0, MessageKind::kCostsHeard, *answer);
    understood = false;
  } else if (understood && message.kind == MessageKind::kCostsHeard && is_coordinator) {
    understood = costs.take_answer(rank, message.payload);
  } else if (understood && message.kind == MessageKind::kCostsFrom && !is_coordinator) {
    understood = costs.take_settlement(message.payload);
  } else {
    understood = false;
  }
  if (understood) return {};
  return KOLO_ERROR(kInternal, "rank {}: unexpected or malformed message {} on costs from rank {}",
                    world_.rank(), static_cast<int>(message.kind), rank);
}

std::optional<LinkCosts> Cycle::corrected_costs() const {
  if (!link_refresh_) return std::nullopt;
  return link_refresh_->costs();
}

std::optional<LinkCosts> Cycle::agreed_costs() const {
  if (!cost_switch_) return std::nullopt;
  return cost_switch_->newest();
}

}  // namespace kolo
