// TraceJson: trace records as events of the Trace Event Format ("Trace Event Format", Google,
// 2016), which chrome://tracing and Perfetto read. A process of the trace is a rank, a thread is a
// lane. Writer thread.
#pragma once

#include "runtime/observe/lane_table.h"
#include "runtime/observe/trace_record.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace kolo {

/// Whose timeline it is, and its axis.
struct TimelineOrigin {
  int rank = 0;
  int size = 1;
  std::string host;
  int pid = 0;
  /// Where the axis begins on this rank's clock; all ranks mean the same moment.
  TraceTime zero = 0;
  std::int64_t offset_ns = 0;  ///< this rank's clock minus rank 0's; is in `zero` already
  std::int64_t error_ns = 0;   ///< how far off that may be at most, when the ranks started
};

class TraceJson {
 public:
  /// Events go to the end of `out`: the first one as it is, each other behind a comma.
  explicit TraceJson(fmt::memory_buffer& out) : out_(out) {}

  void begin(const TimelineOrigin& origin);
  void add(const TraceRecord& record, std::string_view text);
  /// How many records were lost so far.
  void add_dropped(std::uint64_t count);
  /// The last event: how many records were written and how many were lost.
  void end(std::uint64_t written, std::uint64_t dropped);

 private:
  void event(const TensorRecord& tensor, std::string_view name);
  void event(const OperationRecord& operation, std::string_view text);
  void event(const StepRecord& step, std::string_view text);
  void event(const WaitRecord& wait, std::string_view text);
  void event(const CounterRecord& counter, std::string_view text);
  void event(const NoteRecord& note, std::string_view text);

  /// The lane's number; it is introduced in the file first. Lanes are shown by `order`.
  int lane(std::string_view title, int order, TraceTime begin, TraceTime end);
  void slice(std::string_view category, std::string_view name, int lane, TraceTime begin,
             TraceTime end);
  void metadata(std::string_view name, int lane);
  void note(TraceTime at, std::string_view text);
  void microseconds(std::int64_t ns);

  fmt::memory_buffer& out_;
  TimelineOrigin origin_;
  LaneTable lanes_;
  TraceTime last_ = 0;  ///< of the records so far
};

}  // namespace kolo
