#include "runtime/execution/step_trace.h"

#include <string_view>

namespace kolo {
namespace {

bool is_local(const Step& step) {
  return step.kind == StepKind::kReduce || step.kind == StepKind::kCopy;
}

bool reads_input(const Schedule& schedule, const Step& step) {
  return step.source_count > 0 && schedule.sources(step).front().space == Space::kInput;
}

std::string_view label(const Schedule& schedule, const Step& step) {
  switch (step.kind) {
    case StepKind::kSend:
      return "send";
    case StepKind::kReceive:
      return "receive";
    case StepKind::kSignal:
      return "notify";
    case StepKind::kWait:
      return "await";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kCopy:
      return reads_input(schedule, step) ? "pack" : "unpack";
  }
  return "";
}

std::uint64_t step_bytes(const Schedule& schedule, const Step& step, StepTrace::Widths widths) {
  std::uint64_t bytes = 0;
  const bool reads = step.destination_count == 0;
  for (const Operand& operand : reads ? schedule.sources(step) : schedule.destinations(step))
    bytes += operand.length * (operand.partial ? widths.partial : widths.element);
  return bytes;
}

}  // namespace

void StepTrace::start_recording(const Schedule& schedule, std::uint64_t sequence, Widths widths) {
  schedule_ = &schedule;
  sequence_ = sequence;
  widths_ = widths;
  costs_ = {};
  begun_.assign(schedule.steps.size(), 0);
}

void StepTrace::record_begin(StepId id) {
  if (timeline_->with_steps() || is_local(schedule_->steps[id])) begun_[id] = trace_now();
}

void StepTrace::record_end(StepId id) {
  const Step& step = schedule_->steps[id];
  const bool local = is_local(step);
  if (!local && !timeline_->with_steps()) return;
  const TraceTime now = trace_now();
  if (step.kind == StepKind::kReduce) {
    costs_.reduce += now - begun_[id];
  } else if (local) {
    (reads_input(*schedule_, step) ? costs_.pack : costs_.unpack) += now - begun_[id];
  }
  if (!timeline_->with_steps() || !timeline_->has(begun_[id])) return;
  timeline_->record(StepRecord{.kind = label(*schedule_, step),
                               .peer = step.peer,
                               .sequence = sequence_,
                               .bytes = step_bytes(*schedule_, step, widths_),
                               .begun = begun_[id],
                               .ended = now});
}

}  // namespace kolo
