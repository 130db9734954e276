// TimelineWriter: the thread that takes trace records out of their ring and writes them. Each write
// ends the JSON list and the next one begins over that end, so the file is valid when the process
// dies, unless it is killed within a write: then its last event is cut, and the list has no end.
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
  /// `path` is for messages.
  TimelineWriter(TraceRing& ring, UniqueDescriptor file, std::string path);
  ~TimelineWriter();

  /// Begins the file and the thread.
  void start(const TimelineOrigin& origin);
  /// Waits until everything that has been pushed is written, at most `timeout`.
  void flush(std::chrono::milliseconds timeout);
  /// Writes the rest and ends the thread. kInternal with the reason if the file is not complete.
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

  // The thread's own.
  fmt::memory_buffer buffer_;
  TraceJson json_{buffer_};
  off_t end_ = 0;  ///< where the list's end is, and the next event goes
  std::uint64_t written_ = 0;
  std::uint64_t dropped_ = 0;
  Status status_;

  std::thread thread_;
};

}  // namespace kolo
