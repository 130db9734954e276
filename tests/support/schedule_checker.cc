// The schedule checker's entry point, and the checks that need no simulation: structure and
// matching messages.
#include "tests/support/schedule_checker.h"

#include "tests/support/schedule_checker_parts.h"

#include <algorithm>
#include <tuple>

namespace kolo::test {
namespace {

Status check_operand(std::span<const Schedule> schedules, const Schedule& schedule, StepId id,
                     const Operand& operand, Role role) {
  std::uint64_t limit =
      operand.space == Space::kInput ? schedule.input_elements : schedule.output_elements;
  if (operand.space == Space::kScratch) limit = schedule.scratch_elements;
  if (operand.space == Space::kStaging) limit = schedule.staging_elements;
  if (operand.space == Space::kPeer) {
    if (operand.rank < 0 || operand.rank >= schedule.size)
      return KOLO_ERROR(kInternal, "{}: an operand of rank {}", describe(schedule, id),
                        operand.rank);
    const Schedule& peer = schedules[static_cast<std::size_t>(operand.rank)];
    limit = peer.scratch_elements;
    const std::uint64_t stood_for =
        role == Role::kSource ? peer.input_elements : peer.output_elements;
    if (operand.direct != Operand::kNowhere && operand.direct + operand.length > stood_for)
      return KOLO_ERROR(kInternal, "{}: an operand stands for elements beyond {}",
                        describe(schedule, id), stood_for);
  }
  if (operand.partial && (operand.space == Space::kInput || operand.space == Space::kOutput))
    return KOLO_ERROR(kInternal, "{}: a partial sum in space {}", describe(schedule, id),
                      static_cast<int>(operand.space));
  if (operand.offset > limit || operand.length > limit - operand.offset)
    return KOLO_ERROR(kInternal, "{}: an operand reaches to element {} of {}",
                      describe(schedule, id), operand.offset + operand.length, limit);
  return {};
}

Status check_operand_counts(const Schedule& schedule, StepId id) {
  const Step& step = schedule.steps[id];
  bool right = false;
  switch (step.kind) {
    case StepKind::kSend:
      right = step.source_count == 1 && step.destination_count == 0;
      break;
    case StepKind::kReceive:
      right = step.source_count == 0 && step.destination_count == 1;
      break;
    case StepKind::kReduce:
      right = step.source_count >= 1 && step.destination_count >= 1;
      break;
    case StepKind::kCopy:
      right = (step.source_count == 1 && step.destination_count >= 1) ||
              (step.source_count == 0 && step.destination_count == 0);
      break;
    case StepKind::kSignal:
    case StepKind::kWait:
      right = step.source_count == 0 && step.destination_count == 0;
      break;
  }
  if (!right)
    return KOLO_ERROR(kInternal, "{}: {} sources and {} destinations", describe(schedule, id),
                      step.source_count, step.destination_count);
  return {};
}

Status check_step(std::span<const Schedule> schedules, const Schedule& schedule, StepId id,
                  const Contract& contract) {
  const Step& step = schedule.steps[id];
  for (const StepId dependency : schedule.depends_on(step))
    if (dependency >= id)
      return KOLO_ERROR(kInternal, "{}: depends on step {}, which is not before it",
                        describe(schedule, id), dependency);
  if (is_message(step.kind) && (step.peer < 0 || step.peer >= schedule.size))
    return KOLO_ERROR(kInternal, "{}: no such peer", describe(schedule, id));
  KOLO_TRY(check_operand_counts(schedule, id));

  std::vector<Operand> operands(schedule.sources(step).begin(), schedule.sources(step).end());
  for (const Operand& destination : schedule.destinations(step)) {
    if (destination.space == Space::kInput)
      return KOLO_ERROR(kInternal, "{}: writes the input", describe(schedule, id));
    const Location written = locate(destination, Role::kDestination, schedule.rank, contract);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Role role = i < step.source_count ? Role::kSource : Role::kDestination;
      const Location location = locate(operands[i], role, schedule.rank, contract);
      if (location.overlaps(written) && !(location == written))
        return KOLO_ERROR(kInternal, "{}: writes a part of what it reads or writes elsewhere",
                          describe(schedule, id));
    }
    operands.push_back(destination);
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    const Role role = i < step.source_count ? Role::kSource : Role::kDestination;
    KOLO_TRY(check_operand(schedules, schedule, id, operand, role));
    if (operand.length == 0 || operand.length != operands.front().length)
      return KOLO_ERROR(kInternal, "{}: an operand of {} elements beside one of {}",
                        describe(schedule, id), operand.length, operands.front().length);
  }
  return {};
}

/// A dot product is of whole vectors, in memory that is contiguous whatever the user passes.
Status check_combination(const Schedule& schedule, StepId id) {
  const Step& step = schedule.steps[id];
  if (step.kind != StepKind::kReduce) return {};
  if (step.source_count != 2 || step.destination_count != 1)
    return KOLO_ERROR(kInternal, "{}: combines {} vectors into {}", describe(schedule, id),
                      step.source_count, step.destination_count);
  for (const Operand& source : schedule.sources(step))
    if (source.length != schedule.input_elements || source.space == Space::kInput)
      return KOLO_ERROR(kInternal, "{}: combines {} elements of space {}, not {} of the scratch",
                        describe(schedule, id), source.length, static_cast<int>(source.space),
                        schedule.input_elements);
  return {};
}

struct Message {
  int from = 0, to = 0;
  std::uint32_t tag = 0;
  GlobalStep step;

  auto key() const { return std::tuple(from, to, tag); }
};

/// The memory that is sent or received; empty for a signal.
Operand message_of(const Schedule& schedule, const Step& step) {
  if (step.kind == StepKind::kSend) return schedule.sources(step).front();
  if (step.kind == StepKind::kReceive) return schedule.destinations(step).front();
  return {};
}

/// All messages of one direction, sorted; an error if a tag is used twice.
Result<std::vector<Message>> sorted_messages(std::span<const Schedule> schedules, bool outgoing) {
  std::vector<Message> messages;
  for (const Schedule& schedule : schedules)
    for (StepId id = 0; id < schedule.steps.size(); ++id) {
      const Step& step = schedule.steps[id];
      if (!is_message(step.kind) || is_outgoing(step.kind) != outgoing) continue;
      const int from = outgoing ? schedule.rank : step.peer;
      const int to = outgoing ? step.peer : schedule.rank;
      messages.push_back({from, to, step.tag, {schedule.rank, id}});
    }
  std::sort(messages.begin(), messages.end(),
            [](const Message& a, const Message& b) { return a.key() < b.key(); });
  for (std::size_t i = 1; i < messages.size(); ++i)
    if (messages[i].key() == messages[i - 1].key()) {
      const GlobalStep step = messages[i].step;
      return KOLO_ERROR(kInternal, "{}: its tag is used twice",
                        describe(schedules[static_cast<std::size_t>(step.rank)], step.step));
    }
  return messages;
}

}  // namespace

std::string describe(const Schedule& schedule, StepId id) {
  static constexpr const char* kNames[] = {"send to", "receive from", "reduce",
                                           "copy",    "notify",       "await"};
  const Step& step = schedule.steps[id];
  std::string text = fmt::format("rank {}, step {} ({}", schedule.rank, id,
                                 kNames[static_cast<std::size_t>(step.kind)]);
  if (is_message(step.kind)) text += fmt::format(" rank {}, tag {}", step.peer, step.tag);
  return text + ")";
}

Status check_structure(std::span<const Schedule> schedules, const Contract& contract) {
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    const Schedule& schedule = schedules[rank];
    if (schedule.rank != static_cast<int>(rank) ||
        schedule.size != static_cast<int>(schedules.size()))
      return KOLO_ERROR(kInternal, "schedule {} says rank {} of {}", rank, schedule.rank,
                        schedule.size);
    const Contract::Rank& memory = contract.ranks[rank];
    if (schedule.input_elements != memory.input_elements ||
        schedule.output_elements != memory.output_elements)
      return KOLO_ERROR(kInternal,
                        "rank {}: an input of {} and an output of {} elements, not {} "
                        "and {}",
                        rank, schedule.input_elements, schedule.output_elements,
                        memory.input_elements, memory.output_elements);
    for (StepId id = 0; id < schedule.steps.size(); ++id) {
      KOLO_TRY(check_step(schedules, schedule, id, contract));
      if (contract.options.is_adasum) KOLO_TRY(check_combination(schedule, id));
    }
  }
  return {};
}

Result<Partners> match_messages(std::span<const Schedule> schedules) {
  KOLO_ASSIGN(const auto sends, sorted_messages(schedules, true));
  KOLO_ASSIGN(const auto receives, sorted_messages(schedules, false));
  const auto schedule_of = [&](const Message& message) -> const Schedule& {
    return schedules[static_cast<std::size_t>(message.step.rank)];
  };
  Partners partners(schedules.size());
  for (std::size_t rank = 0; rank < schedules.size(); ++rank)
    partners[rank].resize(schedules[rank].steps.size());

  for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    const bool send_is_alone =
        i >= receives.size() || (i < sends.size() && sends[i].key() < receives[i].key());
    if (send_is_alone || i >= sends.size() || receives[i].key() < sends[i].key()) {
      const Message& lonely = send_is_alone ? sends[i] : receives[i];
      return KOLO_ERROR(kInternal, "{}: nothing at the other end",
                        describe(schedule_of(lonely), lonely.step.step));
    }
    const GlobalStep from = sends[i].step, to = receives[i].step;
    const Step& send = schedule_of(sends[i]).steps[from.step];
    const Step& receive = schedule_of(receives[i]).steps[to.step];
    const Operand sent = message_of(schedule_of(sends[i]), send);
    const Operand expected = message_of(schedule_of(receives[i]), receive);
    if (sent.length != expected.length ||
        (send.kind == StepKind::kSend) != (receive.kind == StepKind::kReceive))
      return KOLO_ERROR(kInternal, "{}: {} elements, but {} at the other end",
                        describe(schedule_of(sends[i]), from.step), sent.length, expected.length);
    if (sent.partial != expected.partial)
      return KOLO_ERROR(kInternal, "{}: a partial sum at one end alone",
                        describe(schedule_of(sends[i]), from.step));
    partners[static_cast<std::size_t>(from.rank)][from.step] = to;
    partners[static_cast<std::size_t>(to.rank)][to.step] = from;
  }
  return partners;
}

Result<Traffic> check_schedules(std::span<const Schedule> schedules, const CheckOptions& options) {
  const Contract contract = contract_of(schedules, options);
  KOLO_TRY(check_structure(schedules, contract));
  KOLO_ASSIGN(const Partners partners, match_messages(schedules));
  KOLO_ASSIGN(const auto finish_order, simulate(schedules, partners, contract));
  KOLO_TRY(check_races(schedules, partners, finish_order, contract));
  if (options.kind == OperationKind::kBarrier)
    KOLO_TRY(check_barrier(schedules, partners, finish_order));

  Traffic traffic;
  for (const Schedule& schedule : schedules) {
    traffic.elements.push_back(0);
    traffic.messages.push_back(0);
    traffic.partials.push_back(0);
    for (const Step& step : schedule.steps) {
      if (step.kind != StepKind::kSend) continue;
      const Operand message = message_of(schedule, step);
      traffic.elements.back() += message.length;
      if (message.partial) traffic.partials.back() += message.length;
      ++traffic.messages.back();
    }
  }
  return traffic;
}

}  // namespace kolo::test
