// Timeline: what a rank did and when, as a file that chrome://tracing and Perfetto show (the Trace
// Event Format). record() is called by the progress token's holder and never waits; a thread of the
// timeline's own writes. Off unless KOLO_TIMELINE names a file: then all of it is one branch.
#pragma once

#include "runtime/observe/timeline_writer.h"
#include "runtime/observe/trace_record.h"
#include "runtime/observe/trace_ring.h"

#include <kolo/error.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace kolo {

struct TimelineOptions {
  std::string path;  ///< empty: no timeline
  int rank = 0;
  int size = 1;
  bool steps = false;                 ///< each step of a schedule, too
  std::size_t ring_bytes = 16 << 20;  ///< a power of two
};

/// The file of a rank: %r in the path becomes the rank; without it ".rank" goes before the
/// extension, if there are several ranks. Timeline::open() takes a device's path as it is.
std::string timeline_path(std::string_view path, int rank, int size);

class Timeline {
 public:
  /// One that is off.
  Timeline() = default;
  /// Creates the file, or empties it; kInvalidArgument with the reason if that fails or the path is
  /// that of something else, as a pipe. Never waits. /dev/null is taken.
  static Result<std::unique_ptr<Timeline>> open(const TimelineOptions& options);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Whether there will be one, from open() on.
  bool wanted() const { return writer_ != nullptr; }
  /// Starts the writer; from here on it records. Nothing if it is off.
  void start(const TimelineOrigin& origin);
  /// Drains, ends the file and the writer. What is wrong with the file, if anything. Token holder,
  /// or when nobody drives any more; further calls do nothing.
  Status stop();

  /// Any thread.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  bool with_steps() const { return on() && steps_; }

  /// Token holder. Precondition: on().
  void record(const TraceRecord& record, std::string_view text = {}) { ring_->push(record, text); }
  /// What has been recorded is in the file when this returns, unless the disk takes longer than
  /// half a second. After a failure: the process may end any moment.
  void flush();

 private:
  std::unique_ptr<TraceRing> ring_;
  std::unique_ptr<TimelineWriter> writer_;
  bool steps_ = false;
  std::atomic<bool> on_ = false;
};

}  // namespace kolo
