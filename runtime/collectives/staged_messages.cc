// The rewriting of a schedule's messages. Called through the schedule cache when an operation
// starts, by the holder of the progress token.
//
// Slots are used in turn, in the order of the schedule's steps:
//
//   send of S        →  copy S → slot k, after what the send waited for and the send of slot k
//                       send slot k
//   receive into R   →  receive into slot k, after what it waited for and the readers of slot k
//                       copy slot k → R, after what the receive waited for
//   send of R,       →  send slot k, if that is wanted and no later receive has taken it:
//   after receive R     else as any send
//
// Nobody waits for ever who did not before: unless they are passed on, messages wait for nothing
// new but those of the same direction that are before them in their rank's schedule.
#include "runtime/collectives/staged_messages.h"

#include "runtime/base/check.h"
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
        case StepKind::kNotify:
        case StepKind::kAwait:
          written_.push_back({.done = append(step, after(step))});
          break;
      }
    }
    return std::move(builder_).finish();
  }

 private:
  static constexpr std::size_t kNowhere = SIZE_MAX;

  /// What has become of a step of `from_`.
  struct Written {
    StepId done = kNoStep;
    StepId arrived = kNoStep;     ///< of a receive: it is in its slot
    std::size_t slot = kNowhere;  ///< of a receive: which
  };

  struct Slot {
    std::vector<StepId> users;  ///< who must be done before it is written again
    StepId holds = kNoStep;     ///< of `from_`: whose message was received there last
  };

  struct Slots {
    std::vector<Slot> all;
    std::uint64_t begin = 0;
    std::uint64_t length = 0;  ///< of each
    std::size_t next = 0;

    void lay_out(std::uint64_t longest, int count, std::uint64_t& end) {
      if (longest == 0) return;
      const auto lines = [](std::uint64_t elements) {
        return (elements + kCacheLineElements - 1) / kCacheLineElements * kCacheLineElements;
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
  /// Of such messages.
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
  /// The same for a message that touches no memory but staging memory: then a received one is there
  /// when it has arrived.
  std::vector<StepId> after_arrivals(const Step& step) const {
    std::vector<StepId> steps;
    for (const StepId id : from_.depends_on(step))
      steps.push_back(written_[id].arrived != kNoStep ? written_[id].arrived : written_[id].done);
    return steps;
  }

  /// The step as it was, but for its scratch.
  StepId append(const Step& step, std::vector<StepId> after) {
    std::vector<Operand> sources, destinations;
    for (const Operand& source : from_.sources(step)) sources.push_back(moved(source));
    for (const Operand& destination : from_.destinations(step))
      destinations.push_back(moved(destination));
    return builder_.append(step, sources, destinations, after);
  }

  void write_send(const Step& step);
  void write_receive(const Step& step);
  /// The receive slot that still has what is sent, or kNowhere.
  std::size_t slot_with(const Step& send) const;

  const Schedule& from_;
  bool passes_on_;
  ScheduleBuilder builder_;
  Slots sends_;
  Slots receives_;
  std::vector<Written> written_;  ///< by step of `from_`
};

// A step between the two that changed what was received would be among what the send waits for.
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
