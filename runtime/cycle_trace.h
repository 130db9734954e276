// CycleTrace: tells the timeline what the stages of the cycle do. Each call is one branch where
// there is no timeline. Token holder.
#pragma once

#include "runtime/group.h"
#include "runtime/observe/timeline.h"

#include <cstdint>
#include <span>
#include <string>

namespace kolo {

class CycleTrace {
 public:
  explicit CycleTrace(Timeline& timeline) : timeline_(timeline) {}

  Timeline& timeline() { return timeline_; }

  /// The stages stamp what passes through them.
  void drained(std::span<EntryPtr> entries) { stamp(entries, &Entry::drained_at); }
  void agreed(std::span<EntryPtr> entries) { stamp(entries, &Entry::agreed_at); }
  void agreed(std::span<Agreed> agreed);
  /// It is about to start.
  void starting(PlannedOperation& operation);
  /// Its schedule has ended or is given up; its entries are still in it.
  void ended(const Group& group, const Operation& operation, const Status& status);
  /// The end of a tensor, however it came.
  void finished(const Group& group, const Entry& entry, const Status& status);

  /// A small blocking call of the ordered door, which is no operation.
  void one_shot_begun();
  void one_shot_ended(const Group& group, const OneShot::Request& request);

  /// The whole rank has failed.
  void failed(const Error& error);

 private:
  using Clock = std::chrono::steady_clock;

  void stamp(std::span<EntryPtr> entries, Clock::time_point Entry::*when);
  void count(std::int64_t bytes, int operations);

  Timeline& timeline_;
  std::string text_;  ///< kept for its memory
  TraceTime one_shot_begun_ = 0;
  std::int64_t bytes_in_flight_ = 0;
  std::int64_t operations_in_flight_ = 0;
};

}  // namespace kolo
