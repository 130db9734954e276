#include "runtime/bootstrap/shared_file.h"

#include "runtime/base/check.h"
#include "runtime/base/system_error.h"
#include "runtime/bootstrap/pause.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

namespace kolo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPauseForLock(1);
// A rank holds the lock only while it reads what is new.
constexpr milliseconds kLongestPauseForLock(5);

}  // namespace

SharedFile::Lock::Lock(const SharedFile& file, Deadline deadline) : file_(file) {
  milliseconds pause = kFirstPauseForLock;
  for (;;) {
    error_ = ::flock(file.fd_.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error_ == EINTR) continue;
    if (error_ != EWOULDBLOCK || deadline.expired()) return;
    pause_for(pause, deadline);
    pause = std::min(pause * 2, kLongestPauseForLock);
  }
}

SharedFile::Lock::~Lock() {
  if (error_ == 0) ::flock(file_.fd_.get(), LOCK_UN);
}

Status SharedFile::Lock::status() const {
  if (error_ == 0) return {};
  if (error_ == EWOULDBLOCK) {
    return KOLO_ERROR(kTimeout,
                      "another process has kept {} locked until the deadline "
                      "(KOLO_INIT_TIMEOUT); end it, or meet in another file",
                      file_.path_);
  }
  return KOLO_ERROR(kUnsupported,
                    "cannot lock {}: {}; its file system has no working locks, so meet by "
                    "tcp:// or in a file elsewhere",
                    file_.path_, reason(error_));
}

Status SharedFile::open() {
  fd_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd_) {
    return KOLO_ERROR(kInvalidArgument,
                      "cannot open {}: {}; give a path at which all ranks can write a file", path_,
                      reason(errno));
  }
  // Anyone who can write to the file can mislead all ranks.
  struct stat status = {};
  if (::fstat(fd_.get(), &status) != 0) {
    return KOLO_ERROR(kTransport, "cannot look at {}: {}", path_, reason(errno));
  }
  if (status.st_uid != ::geteuid()) {
    return KOLO_ERROR(kInvalidArgument,
                      "{} belongs to user {}, and this process is of user {}; give a path at which "
                      "nobody else has made a file",
                      path_, status.st_uid, ::geteuid());
  }
  if ((status.st_mode & S_IWOTH) != 0) {
    return KOLO_ERROR(kInvalidArgument,
                      "{} has mode {:o}, so that anybody may write to it; remove it: ranks make it "
                      "with mode 600",
                      path_, status.st_mode & 0777);
  }
  return {};
}

bool SharedFile::is_at_path() const {
  struct stat mine = {};
  struct stat there = {};
  return ::fstat(fd_.get(), &mine) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

bool SharedFile::is_empty() const {
  struct stat status = {};
  return ::fstat(fd_.get(), &status) == 0 && status.st_size == 0;
}

std::chrono::seconds SharedFile::age() const {
  // The file system may be on another host, with another clock. So set the access time, which
  // nobody needs, to the current time of that host.
  constexpr std::array<timespec, 2> kTouch = {{{0, UTIME_NOW}, {0, UTIME_OMIT}}};
  struct stat status = {};
  const bool is_touched = ::futimens(fd_.get(), kTouch.data()) == 0;
  ::fstat(fd_.get(), &status);
  const std::time_t now = is_touched ? status.st_atime : std::time(nullptr);
  return std::chrono::seconds(std::max<std::time_t>(0, now - status.st_mtime));
}

void SharedFile::remove() const { ::unlink(path_.c_str()); }

Status SharedFile::append(const Fields& fields) const {
  const std::string frame = to_frame(fields);
  const auto written = ::write(fd_.get(), frame.data(), frame.size());
  if (written == static_cast<ssize_t>(frame.size())) return {};
  return KOLO_ERROR(kOutOfMemory, "cannot write {}: {}", path_,
                    written < 0 ? reason(errno) : "no space is left");
}

Result<std::optional<Fields>> SharedFile::take() {
  std::array<char, 65536> chunk;
  for (;;) {
    KOLO_ASSIGN(auto record, take_frame(rest_, kRequestLimit));
    if (record) return record;
    const auto got = ::pread(fd_.get(), chunk.data(), chunk.size(), read_);
    if (got < 0) return KOLO_ERROR(kTransport, "cannot read {}: {}", path_, reason(errno));
    if (got == 0) return std::optional<Fields>();
    read_ += got;
    rest_.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace kolo
