// ProgressToken: one holder at a time, precedence of threads that wait, and the end.
#include "runtime/base/progress_token.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace kolo {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kForever = Clock::time_point::max();

/// The state that the token protects; not atomic, so that ThreadSanitizer sees any overlap.
struct Protected {
  long steps = 0;
  void touch(const ProgressToken& token) {
    token.assert_held();
    ++steps;
  }
};

/// The background thread's loop as the driver runs it: step, and release when asked.
class Background {
 public:
  Background(ProgressToken& token, Protected& state)
      : token_(token), state_(state), thread_([this] { run(); }) {}
  ~Background() { thread_.join(); }

  long rounds() const { return rounds_; }

 private:
  void run() {
    while (const auto hold = token_.acquire_background()) {
      ++rounds_;
      while (!token_.wanted()) {
        state_.touch(token_);
        std::this_thread::yield();
      }
    }
  }

  ProgressToken& token_;
  Protected& state_;
  std::atomic<long> rounds_ = 0;
  std::thread thread_;
};

void close(ProgressToken& token) {
  const auto hold = token.acquire();
  ASSERT_TRUE(hold);
  token.close();
}

TEST(ProgressToken, TheBackgroundThreadHasItsTurnThoughAnotherTakesItAtOnceAgain) {
  ProgressToken token;
  std::atomic<bool> had_its_turn = false;
  auto first = token.acquire_for_waiter(kForever);
  std::thread background([&] { had_its_turn = token.acquire_background().has_value(); });
  first->release_quietly();
  first.reset();
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (!had_its_turn && Clock::now() < end) {
    auto hold = token.acquire_for_waiter(kForever);
    ASSERT_TRUE(hold);
    hold->release_quietly();
    const auto until = Clock::now() + std::chrono::milliseconds(5);
    while (Clock::now() < until) token.assert_held();
  }
  EXPECT_TRUE(had_its_turn);
  close(token);
  background.join();
}

TEST(ProgressToken, ManyThreadsShareItWithTheBackgroundThread) {
  ProgressToken token;
  Protected state;
  std::atomic<long> driven = 0;
  std::atomic<long> left_to_others = 0;
  {
    const Background background(token, state);
    std::latch all_here(6);
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&, i] {
        all_here.arrive_and_wait();
        for (int round = 0; round < 200; ++round) {
          // Some acquire as threads that wait for an operation, some as threads that only need a
          // look.
          const auto hold = i < 4 ? token.acquire_for_waiter(kForever) : token.acquire();
          if (hold) {
            for (int step = 0; step < 10; ++step) state.touch(token);
            ++driven;
          } else {
            ++left_to_others;
            std::this_thread::yield();
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    close(token);
  }
  EXPECT_EQ(driven + left_to_others, 6 * 200);
  EXPECT_GE(driven, 2 * 200);
  EXPECT_GE(state.steps, driven * 10);
}

TEST(ProgressToken, AWaiterTakesItOverAndTheBackgroundThreadStaysAway) {
  ProgressToken token;
  Protected state;
  const Background background(token, state);
  while (background.rounds() == 0) std::this_thread::yield();
  long rounds = 0;
  {
    const auto hold = token.acquire_for_waiter(kForever);
    ASSERT_TRUE(hold);
    const long steps = state.steps;
    rounds = background.rounds();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    EXPECT_EQ(state.steps, steps);
    EXPECT_EQ(background.rounds(), rounds);
  }
  // If nobody asks, it goes on.
  while (background.rounds() == rounds) std::this_thread::yield();
  close(token);
}

TEST(ProgressToken, TheBackgroundThreadComesAfterThoseWhoWait) {
  for (int round = 0; round < 20; ++round) {
    ProgressToken token;
    auto hold = token.acquire_background();
    std::atomic<bool> served = false;
    std::thread waiter([&] {
      const auto taken = token.acquire_for_waiter(kForever);
      served = taken.has_value();
    });
    while (!token.wanted()) std::this_thread::yield();
    hold.reset();
    const auto again = token.acquire_background();
    EXPECT_TRUE(again);
    EXPECT_TRUE(served);
    waiter.join();
  }
}

TEST(ProgressToken, TheBackgroundThreadNoticesAQuietReleaseAllTheSame) {
  ProgressToken token;
  Protected state;
  const Background background(token, state);
  for (int round = 0; round < 5; ++round) {
    long rounds = 0;
    {
      auto hold = token.acquire_for_waiter(kForever);
      ASSERT_TRUE(hold);
      rounds = background.rounds();
      // Long enough for the background thread to fall asleep; the test holds if it does not.
      const auto until = Clock::now() + std::chrono::milliseconds(5);
      while (Clock::now() < until) std::this_thread::yield();
      hold->release_quietly();
    }
    while (background.rounds() == rounds) std::this_thread::yield();
  }
  close(token);
}

TEST(ProgressToken, AQuietReleaseIsLoudForThoseWhoWaitForTheToken) {
  ProgressToken token;
  auto hold = token.acquire();
  ASSERT_TRUE(hold);
  std::thread other([&] { EXPECT_TRUE(token.acquire()); });
  while (!token.wanted()) std::this_thread::yield();
  hold->release_quietly();
  hold.reset();
  other.join();
}

TEST(ProgressToken, WhoWaitsForAHolderThatKeepsItGivesUpInTime) {
  ProgressToken token;
  const auto hold = token.acquire();
  ASSERT_TRUE(hold);
  std::thread([&] {
    EXPECT_FALSE(token.acquire(Clock::now() + std::chrono::milliseconds(5)));
    EXPECT_FALSE(token.wanted());
    EXPECT_FALSE(token.is_closed());
  }).join();
}

TEST(ProgressToken, ASecondWaiterIsNotKept) {
  ProgressToken token;
  const auto hold = token.acquire_for_waiter(kForever);
  ASSERT_TRUE(hold);
  std::thread([&] { EXPECT_FALSE(token.acquire_for_waiter(kForever)); }).join();
}

TEST(ProgressToken, WhoDoesNotWaitGetsItOnlyWhileItIsFree) {
  ProgressToken token;
  EXPECT_TRUE(token.try_acquire());
  {
    const auto hold = token.acquire();
    EXPECT_FALSE(token.try_acquire());
  }
  EXPECT_TRUE(token.try_acquire());
  close(token);
  EXPECT_FALSE(token.try_acquire());
}

TEST(ProgressToken, OfTwoWaitersOneDrivesAndTheOtherIsSentAway) {
  ProgressToken token;
  std::latch both_wait(2);
  std::atomic<int> got = 0;
  std::atomic<int> sent_away = 0;
  std::vector<std::thread> threads;
  {
    auto background = token.acquire_background();
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        both_wait.count_down();
        const auto hold = token.acquire_for_waiter(kForever);
        if (!hold) {
          ++sent_away;
          return;
        }
        ++got;
        // Holds until the other has been sent away: otherwise that one might come later and get the
        // token.
        while (sent_away == 0) std::this_thread::yield();
      });
    }
    both_wait.wait();
    while (!token.wanted()) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, 1);
  EXPECT_EQ(sent_away, 1);
  EXPECT_FALSE(token.wanted());
}

TEST(ProgressToken, AWaiterGivesUpAtItsDeadline) {
  ProgressToken token;
  const auto background = token.acquire_background();
  std::thread([&] {
    const auto until = Clock::now() + std::chrono::milliseconds(20);
    EXPECT_FALSE(token.acquire_for_waiter(until));
    EXPECT_GE(Clock::now(), until);
  }).join();
  EXPECT_FALSE(token.wanted());
}

TEST(ProgressToken, ClosingSendsEverybodyAway) {
  ProgressToken token;
  auto hold = token.acquire_background();
  std::atomic<int> sent_away = 0;
  std::vector<std::thread> threads;
  threads.emplace_back([&] { sent_away += token.acquire_background() ? 0 : 1; });
  threads.emplace_back([&] { sent_away += token.acquire_for_waiter(kForever) ? 0 : 1; });
  threads.emplace_back([&] { sent_away += token.acquire() ? 0 : 1; });
  while (!token.wanted()) std::this_thread::yield();
  token.close();
  // Also before the token is released.
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sent_away, 3);
  token.assert_held();
  hold.reset();
  EXPECT_FALSE(token.acquire());
  EXPECT_FALSE(token.acquire_background());
}

TEST(ProgressTokenDeathTest, KnowsWhoHoldsIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  ProgressToken token;
  EXPECT_DEATH(token.assert_held(), "broken invariant");
  const auto hold = token.acquire();
  token.assert_held();
  EXPECT_DEATH(std::thread([&] { token.assert_held(); }).join(), "broken invariant");
}

}  // namespace
}  // namespace kolo
