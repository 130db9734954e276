#include "runtime/observe/timeline.h"

#include "runtime/base/check.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace kolo {

std::string timeline_path(std::string_view path, int rank, int size) {
  std::string text(path);
  const std::string number = std::to_string(rank);
  bool replaced = false;
  for (std::size_t at = 0; (at = text.find("%r", at)) != std::string::npos; at += number.size()) {
    text.replace(at, 2, number);
    replaced = true;
  }
  if (replaced || size <= 1) return text;
  const std::size_t slash = text.find_last_of('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = text.find_last_of('.');
  const bool has_extension = dot != std::string::npos && dot > name;
  return text.insert(has_extension ? dot : text.size(), "." + number);
}

Result<std::unique_ptr<Timeline>> Timeline::open(const TimelineOptions& options) {
  auto timeline = std::make_unique<Timeline>();
  if (options.path.empty()) return timeline;
  const std::string path = timeline_path(options.path, options.rank, options.size);
  UniqueDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) {
    return KOLO_ERROR(
        kInvalidArgument,
        "rank {}: KOLO_TIMELINE='{}': cannot create '{}': {}; name a file in a folder "
        "that exists and may be written to",
        options.rank, options.path, path, std::strerror(errno));
  }
  timeline->ring_ = std::make_unique<TraceRing>(options.ring_bytes);
  timeline->writer_ = std::make_unique<TimelineWriter>(*timeline->ring_, std::move(file), path);
  timeline->steps_ = options.steps;
  return timeline;
}

Timeline::~Timeline() { static_cast<void>(stop()); }

void Timeline::start(const TimelineOrigin& origin) {
  if (writer_ == nullptr) return;
  writer_->start(origin);
  on_ = true;
}

void Timeline::flush() {
  if (on_) writer_->flush(std::chrono::milliseconds(500));
}

Status Timeline::stop() {
  if (!on_.exchange(false)) return {};
  return writer_->stop();
}

}  // namespace kolo
