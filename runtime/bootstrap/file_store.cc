#include "runtime/bootstrap/file_store.h"

#include "runtime/base/check.h"
#include "runtime/base/process_end.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/pause.h"
#include "runtime/topology/world.h"

#include <algorithm>
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
// To lock the file for one look after the deadline, and for a rank's last record.
constexpr milliseconds kLastLook(100);

std::string digest_of(const std::string& secret) {
  return to_hex(hmac_sha256(secret, kJob)).substr(0, 32);
}

}  // namespace

Result<std::unique_ptr<FileStore>> FileStore::join(std::string path, const Member& me,
                                                   const std::string& secret, Deadline deadline) {
  // The largest age of a live meeting: its first rank gives up after this time.
  const auto oldest =
      std::chrono::ceil<std::chrono::seconds>(deadline.remaining(std::chrono::hours(24 * 365)));
  milliseconds pause = kShortestPause;
  for (;;) {
    std::unique_ptr<FileStore> store(new FileStore(path, me.rank, oldest));
    KOLO_TRY(store->file_.open());
    {
      const SharedFile::Lock lock(store->file_, deadline);
      KOLO_TRY(lock.status());
      // The last rank of a former meeting may have removed the file between open() and the lock.
      if (!store->file_.is_at_path()) continue;
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

Status FileStore::check_meeting(const std::string& secret, bool is_new) {
  if (!read_new().ok() || job_.empty()) return not_ours("it is no file of kolo's");
  if (job_ != digest_of(secret)) return not_ours("it has another KOLO_SECRET");
  if (!is_new && file_.age() > patience_) return not_ours("nobody waits that long");
  find_dead_processes();
  if (table_.failure()) return not_ours(table_.failure()->message);
  return {};
}

Result<bool> FileStore::enter(const Member& me, const std::string& secret) {
  const bool is_new = file_.is_empty();
  if (is_new) {
    KOLO_TRY(file_.append({std::string(kJob), digest_of(secret)}));
  }
  // A file that does not belong to this meeting stays as it is.
  KOLO_TRY(check_meeting(secret, is_new));
  const auto announce = [&] {
    return file_.append({std::string(kMember), std::to_string(me.rank), std::to_string(me.size),
                         me.who, me.job, here_.pid_namespace, std::to_string(here_.pid)});
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
  const SharedFile::Lock lock(file_, Deadline::after(kLeaveTimeout));
  if (!lock.status().ok()) return;
  // Find dead processes first: they are the reason why this rank gives up.
  if (!met && read_new().ok()) find_dead_processes();
  // If this fails, the others and the next job find out by themselves.
  [[maybe_unused]] const Status told = file_.append(record);
  if (!read_new().ok() || !file_.is_at_path()) return;
  if (!met || left_ == size_) file_.remove();
}

Status FileStore::set(std::string_view key, std::string value) {
  const SharedFile::Lock lock(file_, Deadline::after(patience_));
  KOLO_TRY(lock.status());
  KOLO_TRY(read_new());
  if (table_.find(key) != nullptr) return table_.set(key, std::move(value));
  KOLO_TRY(file_.append({std::string(kSet), std::string(key), std::move(value)}));
  return {};
}

Result<std::string> FileStore::get(std::string_view key, Deadline deadline) {
  milliseconds pause = kShortestPause;
  for (;;) {
    if (const std::string* const value = table_.find(key)) return *value;
    const bool last = deadline.expired();
    {
      const auto last_look = Deadline::after(kLastLook);
      const SharedFile::Lock lock(file_, Deadline::at(std::max(deadline.time(), last_look.time())));
      KOLO_TRY(lock.status());
      KOLO_TRY(read_new());
      // Under the lock, so that no process writes its last record and ends in between.
      find_dead_processes();
    }
    if (const std::string* const value = table_.find(key)) return *value;
    if (table_.failure()) return *table_.failure();
    if (last) return KOLO_ERROR(kTimeout, "nobody set '{}' in time", key);
    // Nothing signals that the file grows, least of all on another host's file system.
    pause_for(pause, deadline);
    pause = std::min(pause * 2, kLongestPause);
  }
}

Status FileStore::read_new() {
  for (;;) {
    KOLO_ASSIGN(auto record, file_.take());
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
    return KOLO_ERROR(kMismatch, "{} has a record '{}' that is not kolo's", file_.path(),
                      record[0]);
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
    if (life.pid != here_.pid && has_ended(life.pid)) table_.leave(rank, false);
  }
}

Error FileStore::not_ours(std::string_view why) const {
  return KOLO_ERROR(
      kInvalidArgument,
      "{} belongs to another meeting, which last wrote to it {} s ago ({}); remove it "
      "if that job is over, and give each job a path of its own",
      file_.path(), file_.age().count(), why);
}

}  // namespace kolo
