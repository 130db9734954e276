// CycleTrace: reports to the timeline and to the flight recorder what the stages of the cycle do.
// Without a timeline and a recorder, each call costs two branches. Token holder.
#pragma once

#include "runtime/cycle/failures.h"
#include "runtime/exchange/exchange.h"
#include "runtime/observe/flight_recorder.h"
#include "runtime/observe/timeline.h"
#include "runtime/operation/operation.h"

#include <cstdint>
#include <span>
#include <string>

namespace kolo {

class CycleTrace {
 public:
  CycleTrace(Timeline& timeline, FlightRecorder& recorder)
      : timeline_(timeline), recorder_(recorder) {}

  Timeline& timeline() { return timeline_; }

  /// A pass over the stages begins.
  void begin_pass(std::chrono::steady_clock::time_point now) {
    if (recorder_.on()) recorder_.begin_pass(trace_time(now));
  }
  void drained(std::span<EntryPtr> entries) { stamp(entries, &Entry::drained_at); }
  /// The cycle takes over a message.
  void message(Entry& entry);
  /// All ranks agree on an entry that no operation carries.
  void agreed(EntryPtr& entry) { stamp(std::span(&entry, 1), &Entry::agreed_at); }
  /// An operation has its number. `fingerprint`: call_of().
  void planned(const Communicator& communicator, PlannedOperation& operation,
               std::uint64_t fingerprint);
  /// An operation is about to start.
  void starting(PlannedOperation& operation);
  /// An operation has ended or was given up; it still holds its entries.
  void ended(const Communicator& communicator, const Operation& operation, const Status& status);
  /// A tensor's operation has ended, with or without an error.
  void finished(const Communicator& communicator, const Entry& entry, const Status& status);

  /// An in-order call failed at once, for its arguments.
  void refused(const Communicator& communicator, const Entry& entry, std::uint64_t sequence,
               const Error& error);

  /// Begin and end of a small blocking in-order call, which is not an Operation.
  void exchange_begun();
  void exchange_ended(const Communicator& communicator, const Exchange::Request& request,
                      const Exchange& exchange);

  /// The rank is in a process set.
  void joined_set(const Communicator& communicator);
  /// The whole rank has failed.
  void failed(const Failure& failure);

 private:
  using Clock = std::chrono::steady_clock;

  void stamp(std::span<EntryPtr> entries, Clock::time_point Entry::*when);
  void record(const Communicator& communicator, const Entry& entry, const Status& status);
  void count(std::int64_t bytes, int operations);

  Timeline& timeline_;
  FlightRecorder& recorder_;
  std::string text_;  ///< reused buffer
  TraceTime exchange_begun_ = 0;
  TraceTime counted_since_ = 0;
  std::int64_t bytes_in_flight_ = 0;
  std::int64_t operations_in_flight_ = 0;
};

}  // namespace kolo
