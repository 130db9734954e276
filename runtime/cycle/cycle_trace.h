// CycleTrace: reports to the timeline what the stages of the cycle do. Each call costs one branch
// without a timeline. Token holder.
#pragma once

#include "runtime/exchange/exchange.h"
#include "runtime/negotiation/controller.h"
#include "runtime/observe/timeline.h"
#include "runtime/operation/operation.h"

#include <cstdint>
#include <span>
#include <string>

namespace kolo {

class CycleTrace {
 public:
  explicit CycleTrace(Timeline& timeline) : timeline_(timeline) {}

  Timeline& timeline() { return timeline_; }

  /// The stages stamp the entries that pass through them.
  void drained(std::span<EntryPtr> entries) { stamp(entries, &Entry::drained_at); }
  void agreed(std::span<EntryPtr> entries) { stamp(entries, &Entry::agreed_at); }
  void agreed(std::span<Agreed> agreed);
  /// An operation is about to start.
  void starting(PlannedOperation& operation);
  /// An operation has ended or was given up; it still holds its entries.
  void ended(const Communicator& communicator, const Operation& operation, const Status& status);
  /// A tensor's operation has ended, with or without an error.
  void finished(const Communicator& communicator, const Entry& entry, const Status& status);

  /// Begin and end of a small blocking in-order call, which is not an Operation.
  void exchange_begun();
  void exchange_ended(const Communicator& communicator, const Exchange::Request& request,
                      std::string_view algorithm);

  /// The whole rank has failed.
  void failed(const Error& error);

 private:
  using Clock = std::chrono::steady_clock;

  void stamp(std::span<EntryPtr> entries, Clock::time_point Entry::*when);
  void count(std::int64_t bytes, int operations);

  Timeline& timeline_;
  std::string text_;  ///< reused buffer
  TraceTime exchange_begun_ = 0;
  std::int64_t bytes_in_flight_ = 0;
  std::int64_t operations_in_flight_ = 0;
};

}  // namespace kolo
