// UsersMemory: memory that was returned to the user is not touched any more, whichever side looks
// first. A rank that never ends its access is waited for only until the deadline. Ranks are threads
// with their own control segments.
#include "runtime/memory/users_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace kolo::test {
namespace {

using std::chrono::milliseconds;

/// The control segments of two ranks on a host, and of a third rank elsewhere.
struct TwoRanks {
  TwoRanks() {
    const std::vector<ControlSegment*> segments = {owned[0].get(), owned[1].get(), nullptr};
    for (int rank = 0; rank < 2; ++rank) memory[rank].open(rank, segments);
  }
  std::unique_ptr<ControlSegment> owned[2] = {std::make_unique<ControlSegment>(),
                                              std::make_unique<ControlSegment>()};
  UsersMemory memory[2];
};

TEST(UsersMemory, WhatIsGivenBackIsTouchedNoMore) {
  for (int round = 0; round < 200; ++round) {
    TwoRanks ranks;
    std::vector<int> users(1024);  // not atomic: the thread sanitizer sees late accesses
    std::atomic<bool> begun = false;
    std::thread other([&] {
      for (int value = 1;; ++value) {
        const UsersMemory::Touch touch(ranks.memory[1]);
        if (ranks.memory[1].has_given_back(0)) return;
        users.assign(users.size(), value);
        begun = true;
      }
    });
    while (!begun) std::this_thread::yield();
    ranks.memory[0].give_back();
    ranks.memory[0].await_others(Deadline::never());
    users.assign(users.size(), -1);
    other.join();
    for (const int value : users) ASSERT_EQ(value, -1) << "in round " << round;
  }
}

TEST(UsersMemory, WhoGivesBackTouchesOthersStill) {
  TwoRanks ranks;
  ranks.memory[0].give_back();
  const UsersMemory::Touch touch(ranks.memory[0]);
  EXPECT_FALSE(ranks.memory[0].has_given_back(1));
  EXPECT_TRUE(ranks.memory[1].has_given_back(0));
}

TEST(UsersMemory, AStoppedRankIsWaitedForUntilTheDeadline) {
  TwoRanks ranks;
  const UsersMemory::Touch touch(ranks.memory[1]);
  const auto before = Deadline::Clock::now();
  ranks.memory[0].give_back();
  ranks.memory[0].await_others(Deadline::after(milliseconds(30)));
  EXPECT_GE(Deadline::Clock::now() - before, milliseconds(30));
}

TEST(UsersMemory, OfADeviceThoseThatHadBegunAreWaitedFor) {
  TwoRanks ranks;
  UsersMemory& own = ranks.memory[0];
  const auto are_over = [&] {
    const auto deadline = Deadline::after(milliseconds(10));
    own.await_others(deadline);
    return !deadline.expired();
  };
  using Touch = UsersMemory::DeviceTouch;
  own.give_back();
  EXPECT_TRUE(are_over());
  auto first = std::make_unique<Touch>(ranks.memory[1]);
  auto second = std::make_unique<Touch>(ranks.memory[1]);
  EXPECT_FALSE(are_over());
  second.reset();
  EXPECT_FALSE(are_over());
  { const UsersMemory::Touch of_the_host(ranks.memory[1]); }
  EXPECT_FALSE(are_over());
  first.reset();
  EXPECT_TRUE(are_over());
}

TEST(UsersMemory, WithoutWindowsThereIsNothingToGiveBack) {
  UsersMemory memory;
  memory.give_back();
  memory.await_others(Deadline::never());
  TwoRanks ranks;
  ranks.memory[0].close();
  ranks.memory[0].give_back();
  EXPECT_FALSE(ranks.memory[1].has_given_back(0));
}

}  // namespace
}  // namespace kolo::test
