#include "runtime/observe/timeline_writer.h"

#include "runtime/base/check.h"
#include "runtime/base/own_thread.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

// The ring has room for far more than a busy rank records in this time.
constexpr std::chrono::milliseconds kPeriod{100};
constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::string_view kListEnd = "\n]\n";

/// Returns 0, or errno.
int write_at(int file, std::string_view bytes, off_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += count;
  }
  return 0;
}

}  // namespace

TimelineWriter::TimelineWriter(TraceRing& ring, UniqueDescriptor file, std::string path)
    : ring_(ring), file_(std::move(file)), path_(std::move(path)) {}

TimelineWriter::~TimelineWriter() { static_cast<void>(stop()); }

void TimelineWriter::start(const TimelineOrigin& origin) {
  buffer_.append(std::string_view("[\n"));
  json_.begin(origin);
  write_out();
  thread_ = own_thread([this] { run(); });
}

void TimelineWriter::run() {
  // At the file size limit the write shall fail; without this, SIGXFSZ would end the process.
  sigset_t at_limit;
  sigemptyset(&at_limit);
  sigaddset(&at_limit, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &at_limit, nullptr);
  for (bool last = false; !last;) {
    std::uint64_t flushes = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kPeriod, [&] { return stopping_ || flushes_asked_ > flushes_done_; });
      last = stopping_;
      flushes = flushes_asked_;
    }
    write_new();
    {
      const std::lock_guard lock(mutex_);
      flushes_done_ = flushes;
    }
    changed_.notify_all();
  }
  json_.end(written_, dropped_);
  write_out();
}

void TimelineWriter::write_new() {
  written_ += ring_.drain([this](const TraceRecord& record, std::string_view text) {
    json_.add(record, text);
    if (buffer_.size() >= kBufferBytes) write_out();
  });
  if (const std::uint64_t dropped = ring_.dropped(); dropped != dropped_) {
    dropped_ = dropped;
    json_.add_dropped(dropped);
  }
  if (buffer_.size() > 0) write_out();
}

void TimelineWriter::write_out() {
  const std::size_t events = buffer_.size();
  buffer_.append(kListEnd);
  if (status_.ok()) {
    const int error = write_at(file_.get(), {buffer_.data(), buffer_.size()}, end_);
    if (error == 0) {
      end_ += static_cast<off_t>(events);
    } else {
      status_ =
          KOLO_ERROR(kInternal, "the timeline '{}' ends early: {}", path_, std::strerror(error));
      // Close the list after the last complete write, so that the file stays readable.
      if (::ftruncate(file_.get(), end_) == 0) {
        static_cast<void>(write_at(file_.get(), kListEnd, end_));
      }
    }
  }
  buffer_.clear();
}

void TimelineWriter::flush(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (stopping_) return;
  const std::uint64_t mine = ++flushes_asked_;
  changed_.notify_all();
  changed_.wait_for(lock, timeout, [&] { return flushes_done_ >= mine; });
}

Status TimelineWriter::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  return status_;
}

}  // namespace kolo
