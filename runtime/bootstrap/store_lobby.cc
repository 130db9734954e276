#include "runtime/bootstrap/store_lobby.h"

#include "runtime/base/check.h"
#include "runtime/base/process_end.h"
#include "runtime/bootstrap/secret.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace kolo {
namespace {

using std::chrono::milliseconds;

// Kinds of records: the first field. The comment lists the fields that follow.
constexpr std::string_view kJobRecord =
    "kolo members 1";                                 ///< nonce, digest of the secret, job, size
constexpr std::string_view kMemberRecord = "member";  ///< number = rank, who, pid namespace, pid
constexpr std::string_view kJoinRecord = "join";      ///< rank, who, pid namespace, pid
constexpr std::string_view kArriveRecord = "arrive";  ///< number
constexpr std::string_view kStayRecord = "stay";      ///< number; it waits no longer
constexpr std::string_view kEndRecord = "end";        ///< number, "done" or "lost"

constexpr std::size_t kJobNonceBytes = 4;
/// How long a process waits for a record until it looks for dead processes again.
constexpr milliseconds kLookForDead(20);
/// A meeting looks for lost members that often.
constexpr milliseconds kMeetingSlice(50);

std::string lobby_digest(const std::string& secret) {
  return to_hex(hmac_sha256(secret, kJobRecord)).substr(0, 32);
}

/// Fails once a member of the world is lost.
class WatchedStore final : public Store {
 public:
  WatchedStore(std::unique_ptr<Store> store, StoreLobby& lobby, int generation)
      : store_(std::move(store)), lobby_(lobby), generation_(generation) {}

  Status set(std::string_view key, std::string value) override {
    return store_->set(key, std::move(value));
  }
  Result<std::string> get(std::string_view key, Deadline deadline) override {
    for (;;) {
      const bool is_last = deadline.remaining(kMeetingSlice) < kMeetingSlice;
      auto value = store_->get(key, is_last ? deadline : Deadline::after(kMeetingSlice));
      if (value.ok() || value.error().code != ErrorCode::kTimeout || is_last) return value;
      const Status members = lobby_.check_members(generation_);
      if (!members.ok()) return members.error();
    }
  }
  Error give_up(Error why) override { return store_->give_up(std::move(why)); }
  void leave() override { store_->leave(); }

 private:
  const std::unique_ptr<Store> store_;
  StoreLobby& lobby_;
  const int generation_;
};

}  // namespace

Result<std::unique_ptr<StoreLobby>> StoreLobby::begin(std::unique_ptr<LobbyLog> log,
                                                      Options options) {
  std::unique_ptr<StoreLobby> lobby(new StoreLobby(std::move(log), std::move(options)));
  const int rank = lobby->options_.me.rank;
  KOLO_TRY(lobby->read());
  if (lobby->is_over()) {
    KOLO_ASSIGN(const std::string nonce, random_bytes(kJobNonceBytes));
    KOLO_TRY(
        lobby->write({std::string(kJobRecord), to_hex(nonce), lobby_digest(lobby->options_.secret),
                      lobby->options_.me.job, std::to_string(lobby->options_.me.size)},
                     [&] { return lobby->is_over(); }));
  }
  KOLO_TRY(lobby->check_job());
  lobby->number_ = rank;
  if (!lobby->lobby_->is_living(rank)) return lobby->taken_for_lost();
  const auto is_free = [&] { return lobby->processes_.count(rank) == 0; };
  if (!is_free()) {
    return KOLO_ERROR(kInvalidArgument,
                      "{} has the processes of another elastic job: there {} is {}; give each job "
                      "a path of its own, and remove the file if that job is over",
                      lobby->log_->where(), rank, lobby->text_of(rank));
  }
  KOLO_TRY(lobby->write(lobby->record_of_me(kMemberRecord, rank), is_free));
  return lobby;
}

Result<std::unique_ptr<StoreLobby>> StoreLobby::find(std::unique_ptr<LobbyLog> log,
                                                     Options options) {
  std::unique_ptr<StoreLobby> lobby(new StoreLobby(std::move(log), std::move(options)));
  KOLO_TRY(lobby->read());
  if (lobby->is_over()) return std::unique_ptr<StoreLobby>();
  KOLO_TRY(lobby->check_job());
  const int rank = lobby->options_.me.rank;
  // The living process that is, or was, this rank.
  const auto former = [&] {
    for (int process = 0; process < lobby->next_; ++process) {
      const auto known = lobby->processes_.find(process);
      const int its_rank = known == lobby->processes_.end() ? process : known->second.rank;
      if (its_rank == rank && lobby->lobby_->is_living(process)) return process;
    }
    return -1;
  };
  // The others take it for lost within that time.
  const auto until = Deadline::after(2 * lobby->options_.patience);
  for (int process = former(); process >= 0; process = former()) {
    KOLO_ASSIGN(const bool ended, lobby->end_dead({process}));
    if (ended) continue;
    const auto known = lobby->processes_.find(process);
    const bool is_here = known != lobby->processes_.end() &&
                         known->second.pid_namespace == lobby->here_.pid_namespace;
    if (is_here || until.expired()) {
      return KOLO_ERROR(kInvalidArgument,
                        "rank {} of the elastic job in {} is {}, which {}; a new process takes the "
                        "rank of one that has ended. Give each job a path of its own, and remove "
                        "the file if that job is over",
                        rank, lobby->log_->where(), lobby->text_of(process),
                        is_here ? "lives" : "may live");
    }
    KOLO_TRY(lobby->read(kLookForDead));
  }
  const std::size_t before = lobby->processes_.size();
  KOLO_TRY(lobby->write(lobby->record_of_me(kJoinRecord, rank), [] { return true; }));
  KOLO_CHECK(lobby->processes_.size() > before);
  lobby->number_ = lobby->next_ - 1;
  return lobby;
}

Fields StoreLobby::record_of_me(std::string_view kind, int number) const {
  return {std::string(kind), std::to_string(number), options_.me.who, here_.pid_namespace,
          std::to_string(here_.pid)};
}

Status StoreLobby::read(milliseconds wait) {
  for (;;) {
    KOLO_ASSIGN(const auto record, log_->read(taken_, wait));
    if (!record) return {};
    KOLO_TRY(apply(*record));
    wait = {};
  }
}

Status StoreLobby::apply(const Fields& record) {
  const auto is = [&](std::string_view kind, std::size_t fields) {
    return record[0] == kind && record.size() == fields;
  };
  const auto count = [&](std::size_t field) { return parse_count(record[field]).value_or(0); };
  ++taken_;
  if (is(kJobRecord, 5)) {
    nonce_ = record[1];
    digest_ = record[2];
    job_ = record[3];
    next_ = size_ = count(4);
    processes_.clear();
    lobby_.emplace(/*least=*/1);
    lobby_->begin(size_);
    return {};
  }
  if (lobby_ && is(kMemberRecord, 5)) {
    processes_[count(1)] = {count(1), record[2], record[3], count(4)};
  } else if (lobby_ && is(kJoinRecord, 5)) {
    processes_[next_] = {count(1), record[2], record[3], count(4)};
    lobby_->start(next_++);
  } else if (lobby_ && is(kArriveRecord, 2)) {
    if (lobby_->is_living(count(1))) lobby_->arrive(count(1));
  } else if (lobby_ && is(kStayRecord, 2)) {
    lobby_->leave(count(1));
  } else if (lobby_ && is(kEndRecord, 3)) {
    if (lobby_->is_living(count(1))) lobby_->end(count(1), record[2] == "done");
  } else {
    return KOLO_ERROR(kMismatch, "{} has a record '{}' that is not kolo's", log_->where(),
                      record[0]);
  }
  static_cast<void>(lobby_->convene());
  return {};
}

template <class IsWanted>
Status StoreLobby::write(const Fields& record, IsWanted is_wanted) {
  while (is_wanted()) {
    KOLO_ASSIGN(const bool is_written, log_->write(taken_, record));
    if (is_written) return apply(record);
    KOLO_TRY(read());
  }
  return {};
}

Status StoreLobby::write_end(int process, bool is_done) {
  return write({std::string(kEndRecord), std::to_string(process), is_done ? "done" : "lost"},
               [&] { return lobby_->is_living(process); });
}

bool StoreLobby::is_dead(int process) const {
  const auto known = processes_.find(process);
  return known != processes_.end() && known->second.pid_namespace == here_.pid_namespace &&
         known->second.pid != here_.pid && has_ended(known->second.pid);
}

Result<bool> StoreLobby::end_dead(const std::vector<int>& processes) {
  bool has_any = false;
  for (const int process : processes) {
    if (!is_dead(process)) continue;
    has_any = true;
    KOLO_TRY(write_end(process, /*is_done=*/false));
  }
  return has_any;
}

bool StoreLobby::is_over() const {
  if (!lobby_) return true;
  for (int process = 0; process < next_; ++process)
    if (lobby_->is_living(process) && !is_dead(process)) return false;
  return true;
}

Status StoreLobby::check_job() const {
  if (digest_ != lobby_digest(options_.secret)) {
    return KOLO_ERROR(kInvalidArgument,
                      "{} has the processes of a job with another KOLO_SECRET; give each job a "
                      "path of its own, and remove the file if that job is over",
                      log_->where());
  }
  const std::string& mine = options_.me.job;
  if ((!job_.empty() && !mine.empty() && job_ != mine) || size_ != options_.me.size) {
    return KOLO_ERROR(kInvalidArgument,
                      "{} has the processes of another job, {} of {} ranks, and this one is {} of "
                      "{} ranks; give each job a path of its own, and remove the file if that job "
                      "is over",
                      log_->where(), job_.empty() ? "one" : job_, size_,
                      mine.empty() ? "one" : mine, options_.me.size);
  }
  return {};
}

Result<int> StoreLobby::newcomers() {
  KOLO_TRY(read());
  if (lobby_->newcomers() == 0) return 0;
  std::vector<int> joined;
  for (int process = size_; process < next_; ++process)
    if (lobby_->is_living(process) && !lobby_->is_member(process)) joined.push_back(process);
  KOLO_ASSIGN([[maybe_unused]] const bool ended, end_dead(joined));
  return lobby_->newcomers();
}

Result<StoreLobby::World> StoreLobby::next_world(bool is_new, Deadline deadline) {
  KOLO_TRY(read());
  if (is_new && !lobby_->is_member(number_)) return World();
  const int before = lobby_->generation();
  KOLO_TRY(write({std::string(kArriveRecord), std::to_string(number_)},
                 [&] { return lobby_->is_living(number_); }));
  std::vector<int> missing;
  auto since = Deadline::Clock::now();
  for (;;) {
    if (!lobby_->is_living(number_)) return taken_for_lost();
    if (lobby_->generation() > before && lobby_->is_member(number_)) {
      const auto& members = lobby_->members();
      const auto at = std::find(members.begin(), members.end(), number_);
      return World{lobby_->generation(), static_cast<int>(at - members.begin()),
                   static_cast<int>(members.size())};
    }
    const bool is_member = lobby_->is_member(number_);
    const auto& members = lobby_->members();
    const bool has_ended = std::none_of(members.begin(), members.end(),
                                        [&](int process) { return lobby_->is_living(process); });
    if (!is_member && has_ended && lobby_->done() > 0) {
      return KOLO_ERROR(kAborted,
                        "the processes of {} have done their training: nothing is left "
                        "to do",
                        log_->where());
    }
    const std::vector<int> now = lobby_->missing();
    KOLO_ASSIGN(const bool ended, end_dead(now));
    if (ended) continue;
    if (now != missing) {
      missing = now;
      since = Deadline::Clock::now();
    }
    // A newcomer waits for members that train, however long that takes.
    if (is_member && Deadline::Clock::now() >= since + options_.patience && is_majority()) {
      KOLO_TRY(end_late(missing));
      continue;
    }
    if (deadline.expired()) {
      const bool is_enough = is_majority();
      KOLO_TRY(write({std::string(kStayRecord), std::to_string(number_)},
                     [&] { return lobby_->generation() == before && lobby_->is_living(number_); }));
      if (lobby_->generation() > before) continue;
      return KOLO_ERROR(kTimeout,
                        "no world could be made in time (KOLO_INIT_TIMEOUT): {} did not come, and "
                        "nobody on their hosts says that they have ended{}",
                        text_of(missing), is_enough ? "" : "; those that came are no majority");
    }
    KOLO_TRY(read(kLookForDead));
  }
}

bool StoreLobby::is_majority() const {
  const std::vector<int> missing = lobby_->missing();
  const auto is_missing = [&](int process) {
    return std::find(missing.begin(), missing.end(), process) != missing.end();
  };
  std::size_t living = 0;
  std::size_t here = 0;
  std::optional<bool> lowest_is_here;
  for (const int process : lobby_->members()) {
    if (!lobby_->is_living(process)) continue;
    ++living;
    if (!is_missing(process)) ++here;
    if (!lowest_is_here) lowest_is_here = !is_missing(process);
  }
  return 2 * here > living || (2 * here == living && lowest_is_here.value_or(false));
}

Status StoreLobby::end_late(const std::vector<int>& missing) {
  const int generation = lobby_->generation();
  for (const int process : missing) {
    const auto is_late = [&] {
      const auto still = lobby_->missing();
      return lobby_->generation() == generation &&
             std::find(still.begin(), still.end(), process) != still.end();
    };
    KOLO_TRY(write({std::string(kEndRecord), std::to_string(process), "lost"}, is_late));
  }
  return {};
}

Status StoreLobby::check_members(int generation) {
  KOLO_TRY(read());
  if (lobby_->generation() == generation) {
    KOLO_ASSIGN([[maybe_unused]] const bool ended, end_dead(lobby_->members()));
    for (const int process : lobby_->members()) {
      if (lobby_->is_living(process)) continue;
      return KOLO_ERROR(kPeerLost, "{} ended while world {} met", text_of(process), generation);
    }
  }
  if (lobby_->generation() == generation && !lobby_->is_left()) return {};
  return KOLO_ERROR(kPeerLost, "another process has given up world {}, which has not met yet",
                    generation);
}

Result<std::unique_ptr<Store>> StoreLobby::meeting(const World& world, Deadline deadline) {
  const Member me = {world.rank, world.size, options_.me.who, options_.me.job};
  auto store =
      log_->meeting(fmt::format("{}.{}", nonce_, world.generation), me, options_.secret, deadline);
  if (!store.ok()) {
    KOLO_TRY(check_members(world.generation));  // a lost member explains more
    return std::move(store).error();
  }
  return std::unique_ptr<Store>(
      std::make_unique<WatchedStore>(*std::move(store), *this, world.generation));
}

void StoreLobby::leave(bool is_done) {
  // If this fails, the others find out by themselves.
  if (!read().ok() || !write_end(number_, is_done).ok()) return;
  if (is_over()) log_->remove();
}

Error StoreLobby::taken_for_lost() const {
  return KOLO_ERROR(kAborted,
                    "the others have taken {} for lost, by {}, and go on without it; start it anew",
                    text_of(number_), log_->where());
}

std::string StoreLobby::text_of(int process) const {
  const auto known = processes_.find(process);
  if (known == processes_.end()) return fmt::format("process {}", process);
  return fmt::format("process {} ({})", process, known->second.who);
}

std::string StoreLobby::text_of(const std::vector<int>& processes) const {
  std::vector<std::string> texts;
  for (const int process : processes) texts.push_back(text_of(process));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace kolo
