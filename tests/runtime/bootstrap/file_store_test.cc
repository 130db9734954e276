// The store in a file: rendezvous, removal, and leftovers of another job.
#include "runtime/bootstrap/file_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "runtime/topology/world.h"
#include "tests/support/deadlines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <fstream>
#include <thread>

namespace {

std::atomic<std::time_t> host_is_ahead_by = 0;

}  // namespace

/// Replaces libc's function with the host's clock: a file system of another host has its own clock.
extern "C" std::time_t time(std::time_t* copy) noexcept {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::time_t seconds = now.tv_sec + host_is_ahead_by;
  if (copy != nullptr) *copy = seconds;
  return seconds;
}

namespace kolo::file_store_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

class FileStoreTest : public testing::Test {
 protected:
  ~FileStoreTest() override { ::unlink(path_.c_str()); }
  Result<std::unique_ptr<FileStore>> join(int rank, int size, const std::string& secret = "") {
    return FileStore::join(path_, {rank, size, fmt::format("test {}", rank)}, secret,
                           Deadline::after(seconds(100)));
  }
  std::unique_ptr<FileStore> joined(int rank, int size) {
    auto store = join(rank, size);
    EXPECT_TRUE(store.ok()) << store.error().message;
    return store.ok() ? *std::move(store) : nullptr;
  }
  bool is_there() const { return ::access(path_.c_str(), F_OK) == 0; }
  void expect_refused(const Result<std::unique_ptr<FileStore>>& store, const char* part) {
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(store.error().message,
                AllOf(HasSubstr(path_), HasSubstr(" s ago"), HasSubstr(part), HasSubstr("remove")));
  }

  const std::string path_ = fmt::format("{}kolo_file_store_{}", testing::TempDir(), ::getpid());
};

TEST_F(FileStoreTest, RanksExchangeAndTheLastOneRemovesTheFile) {
  constexpr int kSize = 6;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto store = joined(rank, kSize);
      StoreBootstrap bootstrap(*store, rank, kSize);
      for (const char* phase : {"a", "b"}) {
        const auto blobs = bootstrap.exchange(phase, fmt::format("{}{}", phase, rank), later());
        ASSERT_TRUE(blobs.ok()) << blobs.error().message;
        for (int other = 0; other < kSize; ++other) {
          EXPECT_EQ((*blobs)[static_cast<std::size_t>(other)], fmt::format("{}{}", phase, other));
        }
      }
      store->leave();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_FALSE(is_there());
}

TEST_F(FileStoreTest, TheFileIsForThisUserAlone) {
  const auto store = joined(0, 2);
  struct stat status = {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_TRUE(store->set("a", "1").ok());
  EXPECT_EQ(store->set("a", "2").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(*store->get("a", later()), "1");
}

TEST_F(FileStoreTest, TheDeadlineListsWhoIsMissing) {
  const auto store = joined(1, 3);
  StoreBootstrap bootstrap(*store, 1, 3);
  const auto blobs = bootstrap.exchange("handshake", "", Deadline::after(milliseconds(20)));
  ASSERT_FALSE(blobs.ok());
  EXPECT_EQ(blobs.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(blobs.error().message, HasSubstr(": 0, 2;"));
}

TEST_F(FileStoreTest, AFailureIsToldAndLeavesNoFile) {
  const auto store = joined(0, 2);
  joined(1, 2).reset();
  EXPECT_FALSE(is_there());
  const auto value = store->get("a", later());
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(value.error().message, HasSubstr("rank 1 (test 1) ended"));
}

TEST_F(FileStoreTest, OfSeveralRanksThatGiveUpTheFirstIsRight) {
  const auto a = joined(0, 3);
  const auto b = joined(1, 3);
  const auto c = joined(2, 3);
  const auto loss = [](const char* why) {
    return Error{ErrorCode::kPeerLost, why, __FILE__, __LINE__};
  };
  const Error first = a->give_up(loss("rank 3 is lost"));
  EXPECT_EQ(first.message, "rank 3 is lost; rank 0 (test 0) says so");
  EXPECT_EQ(b->give_up(loss("rank 0 is lost")).message, first.message);
  EXPECT_EQ(c->get("never", later()).error().message, first.message);
}

TEST_F(FileStoreTest, RanksThatDisagreeOnTheirNumberAllHearBothValues) {
  const auto store = joined(0, 2);
  const auto other = join(1, 3);
  const auto value = store->get("a", later());
  for (const Error& error : {other.error(), value.error()}) {
    EXPECT_EQ(error.code, ErrorCode::kMismatch);
    EXPECT_THAT(error.message, AllOf(HasSubstr("rank 1 (test 1) says 3"), HasSubstr("says 2")));
  }
}

TEST_F(FileStoreTest, AFileOfAnotherSecretOrOfThisRankIsRefused) {
  const auto store = joined(0, 2);
  expect_refused(join(1, 2, "other"), "another KOLO_SECRET");
  expect_refused(join(0, 2), "rank 0: test 0 and test 0");
  EXPECT_TRUE(is_there());
}

// It may belong to another job that uses the same path.
TEST_F(FileStoreTest, TheSecondProcessOfARankFailsTheMeeting) {
  const auto store = joined(0, 2);
  const auto other = joined(1, 2);
  expect_refused(join(0, 2), "two processes say that they are rank 0: test 0 and test 0");
  const auto value = other->get("a", later());
  ASSERT_FALSE(value.ok());
  EXPECT_THAT(value.error().message, HasSubstr("two processes say that they are rank 0"));
}

TEST_F(FileStoreTest, AProcessOfAnotherJobIsRefusedAlone) {
  const auto join_of = [&](int rank, const std::string& job) {
    return FileStore::join(path_, {rank, 2, "test", job}, "", later());
  };
  const auto store = join_of(0, "PBS_JOBID=1");
  expect_refused(join_of(1, "PBS_JOBID=2"), "of the job PBS_JOBID=1 (rank 0, test)");
  const auto other = join_of(1, "PBS_JOBID=1");
  ASSERT_TRUE(other.ok()) << other.error().message;
}

TEST_F(FileStoreTest, AFileOfADeadRankIsRefused) {
  const pid_t child = ::fork();
  if (child == 0) {
    [[maybe_unused]] auto* const left_behind = joined(1, 2).release();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  expect_refused(join(0, 2), "rank 1 (test 1) ended");
}

TEST_F(FileStoreTest, AKilledRankFailsThoseThatWait) {
  const auto store = joined(0, 2);
  const pid_t child = ::fork();
  if (child == 0) {
    [[maybe_unused]] auto* const left_behind = joined(1, 2).release();
    ::_exit(0);
  }
  // It stays a zombie, as one whose parent looks elsewhere.
  siginfo_t ended = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(store->get("a", later()).error().code, ErrorCode::kPeerLost);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(FileStoreTest, AnOldFileAndAForeignOneAreRefusedAndLeftAlone) {
  {
    const auto store = joined(0, 3);
    const std::array<timespec, 2> times = {{{1, 0}, {1, 0}}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times.data(), 0), 0);
    expect_refused(join(1, 3), "nobody waits that long");
  }
  std::ofstream(path_) << "a letter to somebody else, longer than a record's head";
  expect_refused(join(0, 2), "no file of kolo's");
  EXPECT_TRUE(is_there());
}

TEST_F(FileStoreTest, AgesAreByTheClockOfTheFileSystem) {
  const auto first = joined(0, 4);
  const std::time_t now = std::time(nullptr);
  const auto written_at = [&](std::time_t when) {
    const std::array<timespec, 2> times = {{{when, 0}, {when, 0}}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times.data(), 0), 0);
  };
  for (const std::time_t ahead : {0, 1000, -1000}) {
    host_is_ahead_by = ahead;
    written_at(now - 200);
    expect_refused(join(1, 4), "last wrote to it 20");
    struct stat status = {};
    ASSERT_EQ(::stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mtime, now - 200) << "the next one is to see its age, too";
  }
  std::vector<std::unique_ptr<FileStore>> others;
  for (const std::time_t ahead : {0, 1000, -1000}) {
    host_is_ahead_by = ahead;
    written_at(now - 50);
    others.push_back(joined(static_cast<int>(others.size()) + 1, 4));
  }
  host_is_ahead_by = 0;
}

TEST_F(FileStoreTest, AFileThatSomebodyKeepsLockedIsLeftAtTheDeadline) {
  const UniqueDescriptor held(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  const auto store = FileStore::join(path_, {0, 2, "test"}, "", soon());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(store.error().message, AllOf(HasSubstr(path_), HasSubstr("KOLO_INIT_TIMEOUT")));
  ASSERT_EQ(::flock(held.get(), LOCK_UN), 0);
  const auto other = joined(0, 2);
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  EXPECT_EQ(other->get("a", soon()).error().code, ErrorCode::kTimeout);
  ASSERT_EQ(::flock(held.get(), LOCK_UN), 0);
}

TEST_F(FileStoreTest, AFileThatOthersMayWriteIsRefusedAndLeftAlone) {
  const auto refusal = [&] {
    const auto store = join(0, 2);
    EXPECT_FALSE(store.ok());
    return store.ok() ? std::string() : store.error().message;
  };
  std::ofstream(path_).close();
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(path_), HasSubstr("has mode 666")));
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  // Only root can give a file away, or open another's of mode 600.
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
    EXPECT_THAT(refusal(), AllOf(HasSubstr("belongs to user 12345"), HasSubstr("is of user 0")));
    ASSERT_EQ(::chown(path_.c_str(), 0, static_cast<gid_t>(-1)), 0);
  }
  EXPECT_TRUE(is_there());
  EXPECT_NE(joined(0, 2), nullptr);
}

TEST_F(FileStoreTest, APathThatCannotBeWrittenIsOneLine) {
  const auto store =
      FileStore::join("/nonexistent/file", {0, 2, "test"}, "", Deadline::after(seconds(1)));
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.error().message,
              AllOf(HasSubstr("/nonexistent/file"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace kolo::file_store_test
