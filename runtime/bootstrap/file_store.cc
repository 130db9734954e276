#include "runtime/bootstrap/file_store.h"

#include "runtime/base/check.h"
#include "runtime/base/system_error.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/pause.h"
#include "runtime/topology/world.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <utility>

namespace kolo {
namespace {

using std::chrono::milliseconds;

// Kinds of records: the first field. The comment lists the fields that follow.
constexpr std::string_view kJob = "kolo file 2";  ///< digest of the secret; the first record
constexpr std::string_view kMember = "member";    ///< rank, size, who, job, pid namespace, pid
constexpr std::string_view kSet = "set";          ///< key, value
constexpr std::string_view kLeft = "left";        ///< rank, "met" or "failed"
constexpr std::string_view kGaveUp = "gave up";   ///< rank, ErrorCode as a number, message

constexpr milliseconds kShortestPause(1);
constexpr milliseconds kLongestPause(50);
// A rank holds the lock only while it reads what is new.
constexpr milliseconds kLongestPauseForLock(5);
// To lock the file for one look after the deadline, and for a rank's last record.
constexpr milliseconds kLastLook(100);

std::string digest_of(const std::string& secret) {
  return to_hex(hmac_sha256(secret, kJob)).substr(0, 32);
}

}  // namespace

/// The file's lock, held while a rank reads or changes the file. The lock is polled: flock() itself
/// would wait without a deadline if a process was stopped while it holds the lock.
class FileStore::Lock {
 public:
  Lock(int fd, Deadline deadline) : fd_(fd) {
    milliseconds pause = kShortestPause;
    for (;;) {
      error_ = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
      if (error_ == EINTR) continue;
      if (error_ != EWOULDBLOCK || deadline.expired()) return;
      pause_for(pause, deadline);
      pause = std::min(pause * 2, kLongestPauseForLock);
    }
  }
  ~Lock() {
    if (error_ == 0) ::flock(fd_, LOCK_UN);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  Status status(const std::string& path) const {
    if (error_ == 0) return {};
    if (error_ == EWOULDBLOCK) {
      return KOLO_ERROR(kTimeout,
                        "another process has kept {} locked until the deadline "
                        "(KOLO_INIT_TIMEOUT); end it, or meet in another file",
                        path);
    }
    return KOLO_ERROR(kUnsupported,
                      "cannot lock {}: {}; its file system has no working locks, so meet by "
                      "tcp:// or in a file elsewhere",
                      path, reason(error_));
  }

 private:
  const int fd_;
  int error_ = 0;
};

Result<std::unique_ptr<FileStore>> FileStore::join(std::string path, const Member& me,
                                                   const std::string& secret, Deadline deadline) {
  // The largest age of a live meeting: its first rank gives up after this time.
  const auto oldest =
      std::chrono::ceil<std::chrono::seconds>(deadline.remaining(std::chrono::hours(24 * 365)));
  milliseconds pause = kShortestPause;
  for (;;) {
    std::unique_ptr<FileStore> store(new FileStore(path, me.rank, oldest));
    KOLO_TRY(store->open());
    {
      const Lock lock(store->fd_.get(), deadline);
      KOLO_TRY(lock.status(path));
      // The last rank of a former meeting may have removed the file between open() and the lock.
      if (!store->is_at_path()) continue;
      KOLO_ASSIGN(const bool entered, store->enter(me, secret));
      if (entered) return store;
      if (deadline.expired()) {
        return store->not_ours("this process has left that one, and others are still in it");
      }
    }
    pause_for(pause, deadline);
    pause = std::min(pause * 2, kLongestPause);
  }
}

Status FileStore::open() {
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

Status FileStore::check_meeting(const std::string& secret, bool is_new) {
  if (!read_new().ok() || job_.empty()) return not_ours("it is no file of kolo's");
  if (job_ != digest_of(secret)) return not_ours("it has another KOLO_SECRET");
  if (!is_new && age() > patience_) return not_ours("nobody waits that long");
  find_dead_processes();
  if (table_.failure()) return not_ours(table_.failure()->message);
  return {};
}

Result<bool> FileStore::enter(const Member& me, const std::string& secret) {
  struct stat status = {};
  if (::fstat(fd_.get(), &status) == 0 && status.st_size == 0) {
    KOLO_TRY(append({std::string(kJob), digest_of(secret)}));
  }
  // A file that does not belong to this meeting stays as it is.
  KOLO_TRY(check_meeting(secret, status.st_size == 0));
  const auto announce = [&] {
    return append({std::string(kMember), std::to_string(me.rank), std::to_string(me.size), me.who,
                   me.job, here_.pid_namespace, std::to_string(here_.pid)});
  };
  if (lives_.contains(me.rank)) {
    KOLO_TRY(announce());  // the ranks that are here fail, too
    return not_ours(table_.join(me).error().message);
  }
  if (const Status other_job = table_.check_job(me); !other_job.ok())
    return not_ours(other_job.error().message);
  const auto before = left_by_.find(me.rank);
  const Life mine = {here_.pid_namespace, here_.pid};
  if (before != left_by_.end() && before->second == mine) return false;
  KOLO_TRY(announce());
  is_in_ = true;
  KOLO_TRY(read_new());
  if (table_.failure()) return *table_.failure();
  return true;
}

FileStore::~FileStore() { end({std::string(kLeft), std::to_string(rank_), "failed"}, false); }

void FileStore::leave() { end({std::string(kLeft), std::to_string(rank_), "met"}, true); }

Error FileStore::give_up(Error why) {
  Fields record = error_reply(why);
  record.front() = std::to_string(rank_);
  record.insert(record.begin(), std::string(kGaveUp));
  end(std::move(record), false);
  return table_.failure().value_or(why);
}

void FileStore::end(Fields record, bool met) {
  if (!is_in_) return;
  is_in_ = false;
  const Lock lock(fd_.get(), Deadline::after(kLeaveTimeout));
  if (!lock.status(path_).ok()) return;
  // Find dead processes first: they are the reason why this rank gives up.
  if (!met && read_new().ok()) find_dead_processes();
  // If this fails, the others and the next job find out by themselves.
  [[maybe_unused]] const Status told = append(record);
  if (!read_new().ok() || !is_at_path()) return;
  if (!met || left_ == size_) ::unlink(path_.c_str());
}

Status FileStore::set(std::string_view key, std::string value) {
  const Lock lock(fd_.get(), Deadline::after(patience_));
  KOLO_TRY(lock.status(path_));
  KOLO_TRY(read_new());
  if (table_.find(key) != nullptr) return table_.set(key, std::move(value));
  KOLO_TRY(append({std::string(kSet), std::string(key), std::move(value)}));
  return {};
}

Result<std::string> FileStore::get(std::string_view key, Deadline deadline) {
  milliseconds pause = kShortestPause;
  for (;;) {
    if (const std::string* const value = table_.find(key)) return *value;
    const bool last = deadline.expired();
    {
      const auto last_look = Deadline::after(kLastLook);
      const Lock lock(fd_.get(), Deadline::at(std::max(deadline.time(), last_look.time())));
      KOLO_TRY(lock.status(path_));
      KOLO_TRY(read_new());
    }
    find_dead_processes();
    if (const std::string* const value = table_.find(key)) return *value;
    if (table_.failure()) return *table_.failure();
    if (last) return KOLO_ERROR(kTimeout, "nobody set '{}' in time", key);
    // Nothing signals that the file grows, least of all on another host's file system.
    pause_for(pause, deadline);
    pause = std::min(pause * 2, kLongestPause);
  }
}

bool FileStore::is_at_path() const {
  struct stat mine = {};
  struct stat there = {};
  return ::fstat(fd_.get(), &mine) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

std::chrono::seconds FileStore::age() const {
  // The file system may be on another host, with another clock. So set the access time, which
  // nobody needs, to the current time of that host.
  constexpr std::array<timespec, 2> kTouch = {{{0, UTIME_NOW}, {0, UTIME_OMIT}}};
  struct stat status = {};
  const bool is_touched = ::futimens(fd_.get(), kTouch.data()) == 0;
  ::fstat(fd_.get(), &status);
  const std::time_t now = is_touched ? status.st_atime : std::time(nullptr);
  return std::chrono::seconds(std::max<std::time_t>(0, now - status.st_mtime));
}

Status FileStore::append(const Fields& fields) {
  const std::string frame = to_frame(fields);
  const auto written = ::write(fd_.get(), frame.data(), frame.size());
  if (written == static_cast<ssize_t>(frame.size())) return {};
  return KOLO_ERROR(kOutOfMemory, "cannot write {}: {}", path_,
                    written < 0 ? reason(errno) : "no space is left");
}

Status FileStore::read_new() {
  std::array<char, 65536> chunk;
  for (;;) {
    const auto got = ::pread(fd_.get(), chunk.data(), chunk.size(), read_);
    if (got < 0) return KOLO_ERROR(kTransport, "cannot read {}: {}", path_, reason(errno));
    if (got == 0) break;
    read_ += got;
    rest_.append(chunk.data(), static_cast<std::size_t>(got));
  }
  for (;;) {
    KOLO_ASSIGN(auto record, take_frame(rest_, kRequestLimit));
    if (!record) return {};
    KOLO_TRY(replay(*std::move(record)));
  }
}

Status FileStore::replay(Fields record) {
  const auto is = [&record](std::string_view kind, std::size_t fields) {
    return record[0] == kind && record.size() == fields;
  };
  if (job_.empty() && is(kJob, 2)) {
    job_ = record[1];
  } else if (is(kSet, 3)) {
    [[maybe_unused]] const Status known = table_.set(record[1], std::move(record[2]));
  } else if (is(kMember, 7)) {
    const Member member = {parse_count(record[1]).value_or(0), parse_count(record[2]).value_or(0),
                           record[3], record[4]};
    size_ = member.size;
    lives_[member.rank] = {record[5], parse_count(record[6]).value_or(0)};
    [[maybe_unused]] const Status known = table_.join(member);
  } else if (is(kLeft, 3)) {
    const int rank = note_end(record[1]);
    table_.leave(rank, record[2] == "met");
  } else if (is(kGaveUp, 4)) {
    const int rank = note_end(record[1]);
    record.erase(record.begin());
    record.front() = kErrorReply;
    table_.give_up(rank, parse_reply(std::move(record)).error());
  } else {
    return KOLO_ERROR(kMismatch, "{} has a record '{}' that is not kolo's", path_, record[0]);
  }
  return {};
}

int FileStore::note_end(std::string_view rank_text) {
  const int rank = parse_count(rank_text).value_or(0);
  if (const auto life = lives_.find(rank); life != lives_.end()) {
    left_by_[rank] = life->second;
    lives_.erase(life);
  }
  ++left_;
  return rank;
}

void FileStore::find_dead_processes() {
  for (const auto& [rank, life] : lives_) {
    if (life.pid_namespace != here_.pid_namespace || life.pid <= 0) continue;
    if (::kill(life.pid, 0) != 0 && errno == ESRCH) table_.leave(rank, false);
  }
}

Error FileStore::not_ours(std::string_view why) const {
  return KOLO_ERROR(
      kInvalidArgument,
      "{} belongs to another meeting, which last wrote to it {} s ago ({}); remove it "
      "if that job is over, and give each job a path of its own",
      path_, age().count(), why);
}

}  // namespace kolo
