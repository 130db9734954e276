#include "runtime/observe/timeline.h"

#include "runtime/base/check.h"
#include "runtime/base/output_file.h"
#include "runtime/base/system_error.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace kolo {
namespace {

/// Whether `what` is stdout or stderr of this process, which a timeline would overwrite.
bool is_own_output(const struct stat& what) {
  for (const int output : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own = {};
    if (::fstat(output, &own) == 0 && own.st_dev == what.st_dev && own.st_ino == what.st_ino)
      return true;
  }
  return false;
}

/// The path of this rank's timeline. A path that is no regular file, or is the program's output, is
/// taken as it is: the rank is not put into it, and open_own() then decides.
std::string path_of(const TimelineOptions& options) {
  struct stat what = {};
  if (::stat(options.path.c_str(), &what) == 0 &&
      (!kind_of_no_file(what).empty() || is_own_output(what)))
    return options.path;
  return timeline_path(options.path, options.rank, options.size);
}

/// Opens and empties the file. Each write of the timeline overwrites the end of the previous write,
/// so no other process may write to the file.
Result<UniqueDescriptor> open_own(const std::string& path, const TimelineOptions& options) {
  const auto refused = [&](std::string_view why) {
    return KOLO_ERROR(kInvalidArgument,
                      "rank {}: {}='{}': {}; a timeline takes a file of its own, in a "
                      "folder that exists and may be written to: name one, as /tmp/timeline.json "
                      "(/dev/null is taken, too)",
                      options.rank, options.asked_by, options.path, why);
  };
  auto file = open_output(path);
  if (!file.ok()) return refused(file.error().message);
  struct stat what = {};
  if (::fstat(file->get(), &what) == 0 && is_null_device(what)) return file;
  if (is_own_output(what))
    return refused(fmt::format("'{}' is where the program's own output goes", path));
  if (::ftruncate(file->get(), 0) != 0)
    return refused(fmt::format("cannot empty '{}': {}", path, reason(errno)));
  return file;
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
  KOLO_ASSIGN(UniqueDescriptor file, open_own(path, options));
  timeline->ring_ = std::make_unique<TraceRing>(options.ring_bytes);
  timeline->writer_ = std::make_unique<TimelineWriter>(*timeline->ring_, std::move(file), path);
  timeline->steps_ = options.steps;
  return timeline;
}

Timeline::~Timeline() { static_cast<void>(stop()); }

void Timeline::start(const TimelineOrigin& origin) {
  if (writer_ == nullptr) return;
  writer_->start(origin);
  since_ = trace_now();
  on_ = true;
}

void Timeline::swap(Timeline& other) {
  std::swap(ring_, other.ring_);
  std::swap(writer_, other.writer_);
  std::swap(steps_, other.steps_);
  since_ = trace_now();
  on_ = other.on_.exchange(on_);
}

void Timeline::flush() {
  if (on_) writer_->flush(std::chrono::milliseconds(500));
}

Status Timeline::stop() {
  if (!on_.exchange(false)) return {};
  return writer_->stop();
}

}  // namespace kolo
