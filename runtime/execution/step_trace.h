// StepTrace: measures the steps of a running schedule for the timeline. The executor calls it
// around each step. Without a timeline it costs one branch. Token holder.
#pragma once

#include "runtime/collectives/schedule.h"
#include "runtime/observe/timeline.h"

#include <cstdint>
#include <vector>

namespace kolo {

class StepTrace final {
 public:
  /// Time of the local steps, in nanoseconds.
  struct Costs {
    std::int64_t pack = 0;    ///< copies out of the input
    std::int64_t reduce = 0;  ///< reductions, wherever their operands lie
    std::int64_t unpack = 0;  ///< other copies
  };

  /// Null: records nothing.
  explicit StepTrace(Timeline* timeline) : timeline_(timeline) {}

  /// Bytes of an element and of a partial sum's element.
  struct Widths {
    std::size_t element = 1;
    std::size_t partial = 1;
  };

  void start(const Schedule& schedule, std::uint64_t sequence, Widths widths) {
    schedule_ = nullptr;
    if (timeline_ != nullptr && timeline_->on()) start_recording(schedule, sequence, widths);
  }
  void begin(StepId id) {
    if (schedule_ != nullptr) record_begin(id);
  }
  void end(StepId id) {
    if (schedule_ != nullptr) record_end(id);
  }
  const Costs& costs() const { return costs_; }

 private:
  void start_recording(const Schedule& schedule, std::uint64_t sequence, Widths widths);
  void record_begin(StepId id);
  void record_end(StepId id);

  Timeline* timeline_;
  const Schedule* schedule_ = nullptr;  ///< null: nothing is recorded
  std::uint64_t sequence_ = 0;
  Widths widths_;
  Costs costs_;
  std::vector<TraceTime> begun_;  ///< by step; only local steps unless every step is recorded
};

}  // namespace kolo
