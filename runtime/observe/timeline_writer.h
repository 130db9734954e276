// TimelineWriter: the thread that takes trace records from their ring and writes them to the file.
// Each write closes the JSON list, and the next write begins over that end. So the file is valid
// whenever the process dies, except if it is killed during a write: then the last event is cut off
// and the list is not closed.
#pragma once

#include "runtime/base/unique_handle.h"
#include "runtime/observe/trace_json.h"
#include "runtime/observe/trace_ring.h"

#include <kolo/error.h>

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace kolo {

class TimelineWriter {
 public:
  /// `path`: only for messages.
  TimelineWriter(TraceRing& ring, UniqueDescriptor file, std::string path);
  ~TimelineWriter();

  /// Writes the beginning of the file and starts the thread.
  void start(const TimelineOrigin& origin);
  /// Waits until all records pushed so far are written, at most `timeout`.
  void flush(std::chrono::milliseconds timeout);
  /// Writes the remaining records and ends the thread. kInternal with the reason if the file is not
  /// complete.
  Status stop();

 private:
  void run();
  void write_new();
  void write_out();

  TraceRing& ring_;
  const UniqueDescriptor file_;
  const std::string path_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;            ///< under mutex_
  std::uint64_t flushes_asked_ = 0;  ///< under mutex_
  std::uint64_t flushes_done_ = 0;   ///< under mutex_

  // Used by the writer thread only.
  fmt::memory_buffer buffer_;
  TraceJson json_{buffer_};
  off_t end_ = 0;  ///< offset of the list's end, where the next event goes
  std::uint64_t written_ = 0;
  std::uint64_t dropped_ = 0;
  Status status_;

  std::thread thread_;
};

}  // namespace kolo
