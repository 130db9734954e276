// Rewrites a schedule's messages to use staging memory. Called by the progress token holder through
// the schedule cache when an operation starts.
//
// Slots are used in turn, in the order of the schedule's steps:
//
//   send of S        →  copy S → slot k, after the send's dependencies and the send of slot k
//                       send slot k
//   receive into R   →  receive into slot k, after its dependencies and the readers of slot k
//                       copy slot k → R, after the receive's dependencies
//   send of R,       →  send slot k, if passes_on is set and no later receive has taken slot k;
//   after receive R     else as any other send
//
// This adds no deadlock. Without passes_on, a message waits only for earlier messages of the same
// direction in its rank's schedule.
#include "runtime/collectives/staged_messages.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/split.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr StepId kNoStep = ScheduleBuilder::kNoStep;

class StagedMessagesWriter {
 public:
  StagedMessagesWriter(const Schedule& schedule, const StagingOptions& options)
      : from_(schedule),
        passes_on_(options.passes_on),
        builder_(schedule.algorithm, schedule.rank, schedule.size, schedule.input_elements,
                 schedule.output_elements) {
    KOLO_CHECK(options.slots > 0 && schedule.staging_elements == 0);
    std::uint64_t end = 0;
    if (schedule.scratch_is_mapped) {
      builder_.need_mapped_scratch(schedule.scratch_elements);
    } else {
      end = schedule.scratch_elements;
    }
    sends_.lay_out(longest(StepKind::kSend), options.slots, end);
    receives_.lay_out(longest(StepKind::kReceive), options.slots, end);
    builder_.need_staging(end);
  }

  Schedule write() && {
    for (const Step& step : from_.steps) {
      switch (step.kind) {
        case StepKind::kSend:
          write_send(step);
          break;
        case StepKind::kReceive:
          write_receive(step);
          break;
        case StepKind::kReduce:
        case StepKind::kCopy:
        case StepKind::kSignal:
        case StepKind::kWait:
          written_.push_back({.done = append(step, after(step))});
          break;
      }
    }
    return std::move(builder_).finish();
  }

 private:
  static constexpr std::size_t kNowhere = SIZE_MAX;

  /// What a step of `from_` was rewritten to.
  struct Written {
    StepId done = kNoStep;
    StepId arrived = kNoStep;     ///< for a receive: its data is in the slot
    std::size_t slot = kNowhere;  ///< for a receive: its slot
  };

  struct Slot {
    std::vector<StepId> users;  ///< steps that must be done before the slot is written again
    StepId holds = kNoStep;     ///< step of `from_` whose message was received there last
  };

  struct Slots {
    std::vector<Slot> all;
    std::uint64_t begin = 0;
    std::uint64_t length = 0;  ///< elements of each slot
    std::size_t next = 0;

    void lay_out(std::uint64_t longest, int count, std::uint64_t& end) {
      if (longest == 0) return;
      const auto lines = [](std::uint64_t elements) {
        return round_up(elements, kCacheLineElements);
      };
      all.resize(static_cast<std::size_t>(count));
      begin = lines(end);
      length = lines(longest);
      end = begin + length * all.size();
    }
    std::size_t take() { return std::exchange(next, (next + 1) % all.size()); }
    Operand operand(std::size_t slot, const Operand& message) const {
      return Operand{Space::kStaging, -1, begin + slot * length, message.length}.as_partial(
          message.partial);
    }
  };

  const Operand& message_of(const Step& step) const {
    return step.kind == StepKind::kSend ? from_.sources(step).front()
                                        : from_.destinations(step).front();
  }
  bool is_staged(const Operand& operand) const {
    return operand.space == Space::kScratch && !from_.scratch_is_mapped;
  }
  bool needs_slot(const Operand& message) const {
    return !is_staged(message) && message.length > 0;
  }
  /// Elements of the longest message of this kind that needs a slot.
  std::uint64_t longest(StepKind kind) const {
    std::uint64_t elements = 0;
    for (const Step& step : from_.steps)
      if (step.kind == kind && needs_slot(message_of(step)))
        elements = std::max(elements, message_of(step).length);
    return elements;
  }

  Operand moved(Operand operand) const {
    if (is_staged(operand)) operand.space = Space::kStaging;
    return operand;
  }

  std::vector<StepId> after(const Step& step) const {
    std::vector<StepId> steps;
    for (const StepId id : from_.depends_on(step)) steps.push_back(written_[id].done);
    return steps;
  }
  /// Dependencies of a message that touches only staging memory. A received message is there once
  /// it has arrived, before it is copied.
  std::vector<StepId> after_arrivals(const Step& step) const {
    std::vector<StepId> steps;
    for (const StepId id : from_.depends_on(step))
      steps.push_back(written_[id].arrived != kNoStep ? written_[id].arrived : written_[id].done);
    return steps;
  }

  /// Appends the step with its scratch operands moved to staging memory.
  StepId append(const Step& step, std::vector<StepId> after) {
    std::vector<Operand> sources, destinations;
    for (const Operand& source : from_.sources(step)) sources.push_back(moved(source));
    for (const Operand& destination : from_.destinations(step))
      destinations.push_back(moved(destination));
    return builder_.append(step, sources, destinations, after);
  }

  void write_send(const Step& step);
  void write_receive(const Step& step);
  /// The receive slot that still holds the message of `send`, or kNowhere.
  std::size_t slot_with(const Step& send) const;

  const Schedule& from_;
  bool passes_on_;
  ScheduleBuilder builder_;
  Slots sends_;
  Slots receives_;
  std::vector<Written> written_;  ///< by step of `from_`
};

// If a step between receive and send changed the data, the send would depend on this step.
std::size_t StagedMessagesWriter::slot_with(const Step& send) const {
  std::size_t found = kNowhere;
  if (!passes_on_) return found;
  for (const StepId id : from_.depends_on(send)) {
    const Step& before = from_.steps[id];
    if (before.kind != StepKind::kReceive && before.kind != StepKind::kSend) return kNowhere;
    const std::size_t slot = written_[id].slot;
    if (slot != kNowhere && receives_.all[slot].holds == id &&
        message_of(before) == message_of(send))
      found = slot;
  }
  return found;
}

void StagedMessagesWriter::write_send(const Step& step) {
  const Operand& message = message_of(step);
  if (!needs_slot(message)) {
    written_.push_back({.done = append(step, after(step))});
    return;
  }
  if (const std::size_t slot = slot_with(step); slot != kNowhere) {
    const Operand landed = receives_.operand(slot, message);
    const StepId sent = builder_.append(step, {&landed, 1}, {}, after_arrivals(step));
    receives_.all[slot].users.push_back(sent);
    written_.push_back({.done = sent});
    return;
  }
  const std::size_t number = sends_.take();
  Slot& slot = sends_.all[number];
  const Operand staged = sends_.operand(number, message);
  std::vector<StepId> before = after(step);
  before.insert(before.end(), slot.users.begin(), slot.users.end());
  const StepId copied =
      builder_.append({.kind = StepKind::kCopy}, {&message, 1}, {&staged, 1}, before);
  const StepId sent = builder_.append(step, {&staged, 1}, {}, {&copied, 1});
  slot.users = {sent};
  written_.push_back({.done = sent});
}

void StagedMessagesWriter::write_receive(const Step& step) {
  const Operand& message = message_of(step);
  if (!needs_slot(message)) {
    written_.push_back({.done = append(step, after(step))});
    return;
  }
  const std::size_t number = receives_.take();
  Slot& slot = receives_.all[number];
  const Operand landing = receives_.operand(number, message);
  std::vector<StepId> before = after_arrivals(step);
  before.insert(before.end(), slot.users.begin(), slot.users.end());
  const StepId received = builder_.append(step, {}, {&landing, 1}, before);
  std::vector<StepId> then = after(step);
  then.push_back(received);
  const StepId copied =
      builder_.append({.kind = StepKind::kCopy}, {&landing, 1}, {&message, 1}, then);
  slot = {.users = {copied}, .holds = static_cast<StepId>(written_.size())};
  written_.push_back({.done = copied, .arrived = received, .slot = number});
}

}  // namespace

Schedule stage_messages(const Schedule& schedule, const StagingOptions& options) {
  return StagedMessagesWriter(schedule, options).write();
}

}  // namespace kolo
