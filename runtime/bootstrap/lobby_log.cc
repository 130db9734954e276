#include "runtime/bootstrap/lobby_log.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/file_store.h"
#include "runtime/bootstrap/pause.h"
#include "runtime/bootstrap/prefix_store.h"

#include <unistd.h>

#include <algorithm>

namespace kolo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstLook(1);
constexpr milliseconds kLongestLook(10);
/// A wait for an answer, by the time that an earlier one took.
constexpr int kAnswerSlack = 4;

std::string record_key(std::size_t number) { return fmt::format("members/{}", number); }

/// A store that several owners use.
class BorrowedStore final : public Store {
 public:
  explicit BorrowedStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  Status set(std::string_view key, std::string value) override {
    return store_->set(key, std::move(value));
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    return store_->get(key, deadline);
  }

 private:
  const std::shared_ptr<Store> store_;
};

}  // namespace

bool FileLobbyLog::is_beside(const std::string& path) {
  return ::access(path_beside(path).c_str(), F_OK) == 0;
}

Result<std::unique_ptr<LobbyLog>> FileLobbyLog::open(std::string path) {
  std::unique_ptr<FileLobbyLog> log(new FileLobbyLog(std::move(path)));
  KOLO_TRY(log->file_.open());
  return std::unique_ptr<LobbyLog>(std::move(log));
}

Status FileLobbyLog::read_new() {
  for (;;) {
    KOLO_ASSIGN(auto record, file_.take());
    if (!record) return {};
    records_.push_back(*std::move(record));
  }
}

Result<std::optional<Fields>> FileLobbyLog::read(std::size_t number, milliseconds wait) {
  const auto until = Deadline::after(wait);
  milliseconds pause = kFirstLook;
  for (;;) {
    if (number < records_.size()) return std::optional<Fields>(records_[number]);
    const bool is_last = until.expired();
    {
      const SharedFile::Lock lock(file_, Deadline::after(kLeaveTimeout));
      KOLO_TRY(lock.status());
      KOLO_TRY(read_new());
    }
    if (number < records_.size()) return std::optional<Fields>(records_[number]);
    if (is_last) return std::optional<Fields>();
    pause_for(pause, until);
    pause = std::min(pause * 2, kLongestLook);
  }
}

Result<bool> FileLobbyLog::write(std::size_t number, const Fields& record) {
  const SharedFile::Lock lock(file_, Deadline::after(kLeaveTimeout));
  KOLO_TRY(lock.status());
  if (!file_.is_at_path()) {
    return KOLO_ERROR(kShutdown, "{} has been removed: the job that had it is over", where());
  }
  KOLO_TRY(read_new());
  if (number < records_.size()) return false;
  KOLO_TRY(file_.append(record));
  return true;
}

Result<std::unique_ptr<Store>> FileLobbyLog::meeting(const std::string& world, const Member& me,
                                                     const std::string& secret, Deadline deadline) {
  KOLO_ASSIGN(auto store,
              FileStore::join(fmt::format("{}.world.{}", path_, world), me, secret, deadline));
  return std::unique_ptr<Store>(std::move(store));
}

void FileLobbyLog::remove() {
  const SharedFile::Lock lock(file_, Deadline::after(kLeaveTimeout));
  if (lock.status().ok() && file_.is_at_path()) file_.remove();
}

Result<std::optional<Fields>> KeyLobbyLog::read(std::size_t number, milliseconds wait) {
  auto text = store_->get(record_key(number), Deadline::after(std::max(wait, answers_within_)));
  if (!text.ok() && text.error().code == ErrorCode::kTimeout) return std::optional<Fields>();
  if (!text.ok()) return std::move(text).error();
  Fields record;
  if (!split_fields(*text, record) || record.empty()) {
    return KOLO_ERROR(kMismatch, "{} has a value of '{}' that is not kolo's", where(),
                      record_key(number));
  }
  return std::optional<Fields>(std::move(record));
}

Result<bool> KeyLobbyLog::write(std::size_t number, const Fields& record) {
  std::string value = join_fields(record);
  KOLO_ASSIGN(const std::string there, set_once(record_key(number), value));
  return there == value;
}

Result<std::string> KeyLobbyLog::first(int rank, const std::string& me) {
  return set_once(fmt::format("members/rank {}", rank), me);
}

Result<std::string> KeyLobbyLog::set_once(std::string_view key, const std::string& value) {
  const auto before = Deadline::Clock::now();
  KOLO_ASSIGN(const std::string there, store_->set_once(key, value));
  const auto took = std::chrono::ceil<milliseconds>(Deadline::Clock::now() - before);
  answers_within_ = std::clamp(took * kAnswerSlack, milliseconds(1), milliseconds(1000));
  return there;
}

Result<std::unique_ptr<Store>> KeyLobbyLog::meeting(const std::string& world, const Member&,
                                                    const std::string&, Deadline) {
  return std::unique_ptr<Store>(std::make_unique<PrefixStore>(
      fmt::format("world {}", world), std::make_unique<BorrowedStore>(store_)));
}

}  // namespace kolo
