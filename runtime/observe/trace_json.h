// TraceJson: trace records as events of the Trace Event Format ("Trace Event Format", Google,
// 2016), which chrome://tracing and Perfetto read. A "process" of the trace is a rank, a "thread"
// is a track. Writer thread.
#pragma once

#include "runtime/observe/trace_record.h"
#include "runtime/observe/track_table.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace kolo {

/// The rank that a timeline belongs to, and the origin of its time axis.
struct TimelineOrigin {
  int rank = 0;
  int size = 1;
  std::string host;
  int pid = 0;
  /// Start of the time axis on this rank's clock; the same moment on all ranks.
  TraceTime zero = 0;
  std::int64_t offset_ns = 0;  ///< this rank's clock minus rank 0's; already included in `zero`
  std::int64_t error_ns = 0;   ///< largest error of `offset_ns` when the ranks started
};

class TraceJson {
 public:
  /// Appends events to `out`: the first one as it is, each further one after a comma.
  explicit TraceJson(fmt::memory_buffer& out) : out_(out) {}

  void begin(const TimelineOrigin& origin);
  void add(const TraceRecord& record, std::string_view text);
  /// Adds a note with the number of records lost so far.
  void add_dropped(std::uint64_t count);
  /// Adds the last event: how many records were written and how many were lost.
  void end(std::uint64_t written, std::uint64_t dropped);

 private:
  void event(const TensorRecord& tensor, std::string_view name);
  void event(const OperationRecord& operation, std::string_view text);
  void event(const StepRecord& step, std::string_view text);
  void event(const WaitRecord& wait, std::string_view text);
  void event(const CounterRecord& counter, std::string_view text);
  void event(const NoteRecord& note, std::string_view text);

  /// Returns the number of the track; a new track is first introduced in the file. `order`: see
  /// Order.
  int track(std::string_view title, int order, TraceTime begin, TraceTime end);
  void slice(std::string_view category, std::string_view name, int track, TraceTime begin,
             TraceTime end);
  void metadata(std::string_view name, int track);
  void note(TraceTime at, std::string_view text);
  void microseconds(std::int64_t ns);

  fmt::memory_buffer& out_;
  TimelineOrigin origin_;
  TrackTable tracks_;
  TraceTime last_ = 0;  ///< latest time of the records so far
};

}  // namespace kolo
