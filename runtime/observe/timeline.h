// Timeline: what a rank did and when, as a file for chrome://tracing and Perfetto (the Trace Event
// Format). The holder of the progress token calls record(), which never waits; a thread of the
// timeline writes the file. While the timeline is off, each call costs one branch.
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
  bool steps = false;                           ///< also record each step of a schedule
  std::string_view asked_by = "KOLO_TIMELINE";  ///< what has given the path, for messages
  std::size_t ring_bytes = 16 << 20;            ///< bytes, a power of two
};

/// The path of a rank's file. "%r" in `path` becomes the rank. Without "%r", and with several
/// ranks, ".rank" is put before the extension. Timeline::open() takes the path of a device
/// unchanged.
std::string timeline_path(std::string_view path, int rank, int size);

class Timeline {
 public:
  /// A timeline that is off.
  Timeline() = default;
  /// Creates or empties the file. kInvalidArgument with the reason if that fails, or if the path is
  /// neither a regular file nor /dev/null (a pipe, for example). Never waits.
  static Result<std::unique_ptr<Timeline>> open(const TimelineOptions& options);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Starts the writer thread; from here on the timeline records. Does nothing if the timeline is
  /// off.
  void start(const TimelineOrigin& origin);
  /// Exchanges the files. So a rank's timeline, which its stages know, begins and ends while it
  /// runs: the other one is opened and started before, or stopped afterwards. Progress token
  /// holder.
  void swap(Timeline& other);
  /// Writes the remaining records, then ends the file and the writer thread. kInternal with the
  /// reason if the file is not complete. Call it with the progress token, or when no thread drives
  /// any more. Further calls do nothing.
  Status stop();

  /// Any thread.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  bool with_steps() const { return on() && steps_; }
  /// Whether to record what began at `begun`: the file has what began since the timeline did.
  /// Progress token holder.
  bool has(TraceTime begun) const { return on() && begun >= since_; }
  /// Progress token holder.
  TraceTime since() const { return since_; }

  /// Progress token holder. Precondition: on().
  void record(const TraceRecord& record, std::string_view text = {}) { ring_->push(record, text); }
  /// Blocks until all records so far are in the file, at most half a second. Called after a
  /// failure, since the process may then end at any moment.
  void flush();

 private:
  std::unique_ptr<TraceRing> ring_;
  std::unique_ptr<TimelineWriter> writer_;
  bool steps_ = false;
  TraceTime since_ = 0;
  std::atomic<bool> on_ = false;
};

}  // namespace kolo
