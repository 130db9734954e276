// Membership of an elastic job without a launcher: over a store, whose ranks are threads, and in a
// file.
#include "runtime/bootstrap/store_lobby.h"

#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "tests/support/deadlines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

using Lobbies = std::vector<std::unique_ptr<StoreLobby>>;

std::string text_of(const Result<StoreLobby::World>& world) {
  if (!world.ok()) return world.error().message;
  return fmt::format("world {}: {} of {}", world->generation, world->rank, world->size);
}

std::unique_ptr<StoreLobby> or_fail(Result<std::unique_ptr<StoreLobby>> lobby) {
  EXPECT_TRUE(lobby.ok()) << lobby.error().message;
  return lobby.ok() ? *std::move(lobby) : nullptr;
}

/// Over a store in memory. Its ranks are threads, so nobody sees that one has ended.
class LobbyOverAStore : public testing::Test {
 protected:
  std::unique_ptr<LobbyLog> log() const { return std::make_unique<KeyLobbyLog>(store_); }
  StoreLobby::Options rank(int number, seconds patience = std::chrono::hours(1)) const {
    return {.me = {number, 3, fmt::format("thread {}", number)},
            .secret = "secret",
            .patience = patience};
  }
  Lobbies first_world(seconds patience = std::chrono::hours(1)) const {
    Lobbies lobbies;
    for (int number = 0; number < 3; ++number)
      lobbies.push_back(or_fail(StoreLobby::begin(log(), rank(number, patience))));
    return lobbies;
  }
  static std::future<std::string> next(StoreLobby& lobby, Deadline deadline = later()) {
    return std::async(std::launch::async, [&lobby, deadline] {
      return text_of(lobby.next_world(/*is_new=*/false, deadline));
    });
  }

  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
};

TEST_F(LobbyOverAStore, ThoseThatAreLeftMakeTheNextWorldAndMeetInIt) {
  const Lobbies ranks = first_world();
  ranks[1]->leave(/*is_done=*/false);
  auto last = next(*ranks[2]);
  const auto mine = ranks[0]->next_world(false, later());
  EXPECT_EQ(text_of(mine), "world 2: 0 of 2");
  EXPECT_EQ(last.get(), "world 2: 1 of 2");
  const auto meets = [&](StoreLobby& lobby, int rank) {
    const auto store = lobby.meeting({2, rank, 2}, later());
    return (*store)->exchange("x", rank, 2, std::to_string(rank), later());
  };
  auto other = std::async(std::launch::async, [&] { return meets(*ranks[2], 1); });
  const auto all = meets(*ranks[0], 0);
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(*all, (Gathered{"0", "1"}));
  EXPECT_TRUE(other.get().ok());
}

TEST_F(LobbyOverAStore, ANewProcessTakesTheRankOfOneThatHasEnded) {
  const Lobbies ranks = first_world();
  const auto early = StoreLobby::find(log(), rank(1, seconds(0)));
  ASSERT_FALSE(early.ok());
  EXPECT_THAT(early.error().message, HasSubstr("process 1 (thread 1), which lives"));
  ranks[1]->leave(/*is_done=*/false);
  const auto joins = or_fail(StoreLobby::find(log(), rank(1)));
  EXPECT_EQ(text_of(joins->next_world(/*is_new=*/true, later())), "world 0: 0 of 1");
  EXPECT_EQ(*ranks[0]->newcomers(), 0);
  auto enters = next(*joins);
  while (*ranks[0]->newcomers() == 0) {
  }
  auto last = next(*ranks[2]);
  EXPECT_EQ(text_of(ranks[0]->next_world(false, later())), "world 2: 0 of 3");
  EXPECT_EQ(last.get(), "world 2: 1 of 3");
  EXPECT_EQ(enters.get(), "world 2: 2 of 3");
}

TEST_F(LobbyOverAStore, TheMajorityLeavesBehindWhoDoesNotCome) {
  const Lobbies ranks = first_world(seconds(0));
  auto last = next(*ranks[2]);
  auto first = next(*ranks[0]);
  const std::string of_first = first.get();
  const std::string of_last = last.get();
  EXPECT_EQ(of_first, "world 2: 0 of 2");
  EXPECT_EQ(of_last, "world 2: 1 of 2");
  EXPECT_THAT(text_of(ranks[1]->next_world(false, later())),
              HasSubstr("taken process 1 (thread 1) for lost"));
}

TEST_F(LobbyOverAStore, AMinorityDoesNot) {
  const Lobbies ranks = first_world(seconds(0));
  const std::string alone = text_of(ranks[1]->next_world(false, soon()));
  EXPECT_THAT(alone, HasSubstr("process 0 (thread 0), process 2 (thread 2) did not come"));
  EXPECT_THAT(alone, HasSubstr("no majority"));
  auto last = next(*ranks[2]);
  EXPECT_EQ(text_of(ranks[0]->next_world(false, later())), "world 2: 0 of 2");
}

TEST_F(LobbyOverAStore, AMeetingFailsOnceAMemberHasLeftTheWorld) {
  const Lobbies ranks = first_world();
  ranks[1]->leave(/*is_done=*/false);
  auto last = next(*ranks[2]);
  EXPECT_EQ(text_of(ranks[0]->next_world(false, later())), "world 2: 0 of 2");
  EXPECT_EQ(last.get(), "world 2: 1 of 2");
  const auto store = ranks[0]->meeting({2, 0, 2}, later());
  auto waits =
      std::async(std::launch::async, [&] { return (*store)->exchange("x", 0, 2, "", later()); });
  ranks[2]->leave(/*is_done=*/false);
  const auto met = waits.get();
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(met.error().message, HasSubstr("process 2 (thread 2) ended while world 2 met"));
}

TEST_F(LobbyOverAStore, NewProcessesAreToldThatTheTrainingIsDone) {
  const Lobbies ranks = first_world();
  ranks[1]->leave(/*is_done=*/false);
  const auto joins = or_fail(StoreLobby::find(log(), rank(1)));
  for (const int number : {0, 2}) ranks[static_cast<std::size_t>(number)]->leave(/*is_done=*/true);
  EXPECT_THAT(text_of(joins->next_world(false, later())), HasSubstr("have done their training"));
}

TEST_F(LobbyOverAStore, OtherJobsAreRefused) {
  const Lobbies ranks = first_world();
  auto stranger = rank(0);
  stranger.secret = "another";
  const auto refused = StoreLobby::find(log(), stranger);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("another KOLO_SECRET"));
  auto larger = rank(3);
  larger.me.size = 4;
  const auto of_another_size = StoreLobby::begin(log(), larger);
  ASSERT_FALSE(of_another_size.ok());
  EXPECT_THAT(of_another_size.error().message, HasSubstr("of 3 ranks, and this one"));
}

TEST_F(LobbyOverAStore, AnEndedJobGivesWayToTheNext) {
  for (const auto& lobby : first_world()) lobby->leave(/*is_done=*/false);
  const auto found = StoreLobby::find(log(), rank(0));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(*found, nullptr);
  const Lobbies ranks = first_world();
  ranks[0]->leave(/*is_done=*/false);
  auto last = next(*ranks[2]);
  EXPECT_EQ(text_of(ranks[1]->next_world(false, later())), "world 2: 0 of 2");
}

/// In a file. A process that has been forked ends, and the others of its host see that.
class LobbyInAFile : public testing::Test {
 protected:
  ~LobbyInAFile() override { std::filesystem::remove(FileLobbyLog::path_beside(path_)); }
  std::unique_ptr<LobbyLog> log() const { return *FileLobbyLog::open(path_); }
  static StoreLobby::Options rank(int number) {
    return {.me = {number, 2, fmt::format("rank {}", number)},
            .secret = "",
            .patience = std::chrono::hours(1)};
  }
  /// Runs in another process, which then dies, and is not waited for yet.
  static pid_t dying(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    body();
    ::_exit(0);
  }

  const std::string path_ = fmt::format("{}kolo_lobby_{}", testing::TempDir(), ::getpid());
};

TEST_F(LobbyInAFile, AProcessThatHasDiedIsNotWaitedFor) {
  const pid_t child =
      dying([&] { static_cast<void>(StoreLobby::begin(log(), rank(1)).value().release()); });
  const auto mine = or_fail(StoreLobby::begin(log(), rank(0)));
  // It stays a zombie, as one whose parent looks elsewhere.
  EXPECT_EQ(text_of(mine->next_world(false, later())), "world 2: 0 of 1");
  ::waitpid(child, nullptr, 0);
  mine->leave(/*is_done=*/true);
  EXPECT_FALSE(FileLobbyLog::is_beside(path_));
}

TEST_F(LobbyInAFile, WhatADeadJobHasLeftDoesNoHarm) {
  const pid_t child = dying([&] {
    for (const int number : {0, 1})
      static_cast<void>(StoreLobby::begin(log(), rank(number)).value().release());
  });
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(FileLobbyLog::is_beside(path_));
  const auto found = StoreLobby::find(log(), rank(0));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(*found, nullptr);
  const auto first = or_fail(StoreLobby::begin(log(), rank(0)));
  const auto second = or_fail(StoreLobby::begin(log(), rank(1)));
  EXPECT_EQ(*second->newcomers(), 0);
}

}  // namespace
}  // namespace kolo
