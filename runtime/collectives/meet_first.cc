// Puts a barrier before the sends of a schedule. Called by the progress token holder through the
// schedule cache when an operation starts.
#include "runtime/collectives/meet_first.h"

#include "runtime/collectives/barrier_dissemination.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// The barrier's tags start here; all tags of a schedule itself are lower.
constexpr std::uint32_t kTags = 1U << 31;

}  // namespace

Schedule meet_first(const Schedule& schedule) {
  ScheduleBuilder builder(schedule.algorithm, schedule.rank, schedule.size, schedule.input_elements,
                          schedule.output_elements);
  if (schedule.scratch_is_mapped) builder.need_mapped_scratch(schedule.scratch_elements);
  builder.need_scratch(schedule.scratch_elements);
  builder.need_staging(schedule.staging_elements);

  const Schedule barrier = barrier_dissemination(schedule.rank, schedule.size);
  std::vector<StepId> met;
  for (Step step : barrier.steps) {
    step.tag += kTags;
    const StepId id = builder.append(step, {}, {}, barrier.depends_on(step));
    if (step.kind == StepKind::kWait) met.push_back(id);
  }
  const auto begin = static_cast<StepId>(barrier.steps.size());
  std::vector<StepId> after;
  for (const Step& step : schedule.steps) {
    after.clear();
    for (const StepId id : schedule.depends_on(step)) after.push_back(begin + id);
    if (step.kind == StepKind::kSend) after.insert(after.end(), met.begin(), met.end());
    builder.append(step, schedule.sources(step), schedule.destinations(step), after);
  }
  return std::move(builder).finish();
}

}  // namespace kolo
