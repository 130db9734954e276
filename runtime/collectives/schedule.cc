// ScheduleBuilder: appends steps, their operands and their dependencies to the flat arrays of a
// Schedule. Called by the algorithms in this folder, on any thread.
#include "runtime/collectives/schedule.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <utility>

namespace kolo {

ScheduleBuilder::ScheduleBuilder(std::string algorithm, int rank, int size,
                                 std::uint64_t input_elements, std::uint64_t output_elements) {
  KOLO_CHECK(size >= 1 && rank >= 0 && rank < size);
  schedule_.algorithm = std::move(algorithm);
  schedule_.rank = rank;
  schedule_.size = size;
  schedule_.input_elements = input_elements;
  schedule_.output_elements = output_elements;
}

StepId ScheduleBuilder::send(int peer, std::uint32_t tag, Operand source,
                             std::initializer_list<StepId> after) {
  return append({.kind = StepKind::kSend, .peer = peer, .tag = tag}, {&source, 1}, {}, after);
}

StepId ScheduleBuilder::receive(int peer, std::uint32_t tag, Operand destination,
                                std::initializer_list<StepId> after) {
  return append({.kind = StepKind::kReceive, .peer = peer, .tag = tag}, {}, {&destination, 1},
                after);
}

StepId ScheduleBuilder::reduce(std::initializer_list<Operand> sources,
                               std::initializer_list<Operand> destinations, Scaling scaling,
                               std::initializer_list<StepId> after) {
  return append({.kind = StepKind::kReduce, .scaling = scaling}, sources, destinations, after);
}

StepId ScheduleBuilder::reduce(std::span<const Operand> sources,
                               std::span<const Operand> destinations, Scaling scaling,
                               std::span<const StepId> after) {
  return append({.kind = StepKind::kReduce, .scaling = scaling}, sources, destinations, after);
}

StepId ScheduleBuilder::copy(Operand source, std::initializer_list<Operand> destinations,
                             Scaling scaling, std::initializer_list<StepId> after) {
  return append({.kind = StepKind::kCopy, .scaling = scaling}, {&source, 1}, destinations, after);
}

StepId ScheduleBuilder::copy(Operand source, std::span<const Operand> destinations, Scaling scaling,
                             std::initializer_list<StepId> after) {
  return append({.kind = StepKind::kCopy, .scaling = scaling}, {&source, 1}, destinations, after);
}

StepId ScheduleBuilder::stand_in(Operand source, Operand destination, Scaling scaling,
                                 std::initializer_list<StepId> after) {
  const StepId id = copy(source, {destination}, scaling, after);
  schedule_.steps[id].stands_in = true;
  return id;
}

StepId ScheduleBuilder::signal(int peer, std::uint32_t tag, std::initializer_list<StepId> after) {
  return append({.kind = StepKind::kSignal, .peer = peer, .tag = tag}, {}, {}, after);
}

StepId ScheduleBuilder::wait(int peer, std::uint32_t tag, std::initializer_list<StepId> after) {
  return append({.kind = StepKind::kWait, .peer = peer, .tag = tag}, {}, {}, after);
}

StepId ScheduleBuilder::join(std::span<const StepId> after) {
  return append({.kind = StepKind::kCopy}, {}, {}, after);
}

void ScheduleBuilder::need_scratch(std::uint64_t elements) {
  schedule_.scratch_elements = std::max(schedule_.scratch_elements, elements);
}

void ScheduleBuilder::need_mapped_scratch(std::uint64_t elements) {
  need_scratch(elements);
  schedule_.scratch_is_mapped = true;
}

void ScheduleBuilder::need_staging(std::uint64_t elements) {
  schedule_.staging_elements = std::max(schedule_.staging_elements, elements);
}

void ScheduleBuilder::need_partials(std::span<const Operand> operands) {
  for (const Operand& operand : operands) {
    KOLO_CHECK(!operand.partial ||
               (operand.space != Space::kInput && operand.space != Space::kOutput));
    if (!operand.partial || operand.space == Space::kPeer) continue;
    std::uint64_t& elements = operand.space == Space::kScratch ? schedule_.partial_scratch_elements
                                                               : schedule_.partial_staging_elements;
    elements = std::max(elements, operand.offset + operand.length);
  }
}

Schedule ScheduleBuilder::finish() && { return std::move(schedule_); }

StepId ScheduleBuilder::append(Step step, std::span<const Operand> sources,
                               std::span<const Operand> destinations,
                               std::span<const StepId> after) {
  KOLO_CHECK(schedule_.steps.size() < kNoStep);
  const auto id = static_cast<StepId>(schedule_.steps.size());

  auto& operands = schedule_.operands;
  step.first_source = static_cast<std::uint32_t>(operands.size());
  step.source_count = static_cast<std::uint32_t>(sources.size());
  operands.insert(operands.end(), sources.begin(), sources.end());
  step.first_destination = static_cast<std::uint32_t>(operands.size());
  step.destination_count = static_cast<std::uint32_t>(destinations.size());
  operands.insert(operands.end(), destinations.begin(), destinations.end());

  need_partials(sources);
  need_partials(destinations);

  auto& dependencies = schedule_.dependencies;
  const std::size_t first = dependencies.size();
  for (const StepId dependency : after) {
    if (dependency == kNoStep) continue;
    KOLO_CHECK(dependency < id);
    const auto begin = dependencies.begin() + static_cast<std::ptrdiff_t>(first);
    if (std::find(begin, dependencies.end(), dependency) == dependencies.end())
      dependencies.push_back(dependency);
  }
  step.first_dependency = static_cast<std::uint32_t>(first);
  step.dependency_count = static_cast<std::uint32_t>(dependencies.size() - first);

  schedule_.steps.push_back(step);
  return id;
}

}  // namespace kolo
