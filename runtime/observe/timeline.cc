#include "runtime/observe/timeline.h"

#include "runtime/base/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace kolo {
namespace {

bool is_null_device(const struct stat& what) {
  return S_ISCHR(what.st_mode) && what.st_rdev == makedev(1, 3);
}

/// Why a timeline cannot be written into this; empty: it can. Each write replaces the end of the
/// one before, so it takes places that can be written again, and nobody else who writes there.
std::string_view obstacle_in(const struct stat& what) {
  if (is_null_device(what)) return {};
  if (S_ISFIFO(what.st_mode)) return "a pipe";
  if (S_ISSOCK(what.st_mode)) return "a socket";
  if (S_ISCHR(what.st_mode)) return "a terminal or another character device";
  if (S_ISBLK(what.st_mode)) return "a block device";
  for (const int output : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own = {};
    if (::fstat(output, &own) == 0 && own.st_dev == what.st_dev && own.st_ino == what.st_ino)
      return "where the program's own output goes";
  }
  return {};
}

/// The one of `rank`, but what is no file of their own is that of all ranks: none is made beside
/// it.
std::string path_of(const TimelineOptions& options) {
  struct stat what = {};
  const bool is_there = ::stat(options.path.c_str(), &what) == 0;
  if (is_there && (is_null_device(what) || !obstacle_in(what).empty())) return options.path;
  return timeline_path(options.path, options.rank, options.size);
}

}  // namespace

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
  const std::string path = path_of(options);
  // Without waiting for the reader of a pipe, and without emptying what turns out to be no file.
  UniqueDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644));
  const int error = file ? 0 : errno;
  struct stat what = {};
  // A pipe without a reader and a socket cannot be opened, but looked at.
  const bool is_there = (file ? ::fstat(file.get(), &what) : ::stat(path.c_str(), &what)) == 0;
  const std::string_view obstacle = is_there ? obstacle_in(what) : std::string_view();
  if (!obstacle.empty()) {
    return KOLO_ERROR(
        kInvalidArgument,
        "rank {}: KOLO_TIMELINE='{}': '{}' is {}; a timeline replaces its own end again and again, "
        "which takes a file of its own: name one, as /tmp/timeline.json (/dev/null is taken, too)",
        options.rank, options.path, path, obstacle);
  }
  const auto emptied = [&] { return is_null_device(what) || ::ftruncate(file.get(), 0) == 0; };
  if (error != 0 || !emptied()) {
    return KOLO_ERROR(
        kInvalidArgument,
        "rank {}: KOLO_TIMELINE='{}': cannot create '{}': {}; name a file in a folder "
        "that exists and may be written to",
        options.rank, options.path, path, std::strerror(error != 0 ? error : errno));
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
