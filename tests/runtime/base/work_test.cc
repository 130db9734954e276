// Work: completion as other threads see it, deadlines, and the driver that a waiting thread calls.
#include "runtime/base/check.h"

#include <kolo/work.h>

#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace kolo {
namespace {

using Clock = std::chrono::steady_clock;

TEST(Work, ManyWaitersSeeOneCompletion) {
  for (int round = 0; round < 20; ++round) {
    Work work;
    std::latch ready(9);
    std::vector<std::thread> waiters;
    for (int i = 0; i < 8; ++i) {
      waiters.emplace_back([&, i] {
        ready.arrive_and_wait();
        // The limits of the time type, an hour, and no deadline.
        const auto until = i % 3 == 0   ? Clock::time_point::max()
                           : i % 3 == 1 ? Clock::time_point::max() - std::chrono::nanoseconds(1)
                                        : Clock::now() + std::chrono::hours(1);
        const Status status = work.wait(until);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().message, "the cause");
        EXPECT_TRUE(work.done());
      });
    }
    ready.arrive_and_wait();
    // In most rounds some waiters sleep by now.
    EXPECT_FALSE(work.wait(Clock::now() + std::chrono::milliseconds(round % 4)).ok());
    work.complete(KOLO_ERROR(kPeerLost, "the cause"));
    for (std::thread& waiter : waiters) waiter.join();
  }
}

TEST(Work, PollingSeesTheResult) {
  Work work;
  std::thread completer([&] { work.complete({}, {.contributors = 7}); });
  while (!work.done()) std::this_thread::yield();
  EXPECT_EQ(work.contributors(), 7);
  EXPECT_TRUE(work.wait().ok());
  completer.join();
}

TEST(Work, AWaitThatEndsBeforeTheOperationIsATimeoutAndHarmless) {
  Work work;
  const auto start = Clock::now();
  const Status early = work.wait(start + std::chrono::milliseconds(20));
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, ErrorCode::kTimeout);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_EQ(work.wait(Clock::time_point::min()).error().code, ErrorCode::kTimeout);
  work.complete({});
  EXPECT_TRUE(work.wait(start).ok());
}

template <class Function>
std::shared_ptr<Work::Driver> driver_of(Function function) {
  class Driver final : public Work::Driver {
   public:
    explicit Driver(Function drive) : drive_(std::move(drive)) {}
    bool drive(Work& work, Clock::time_point until) override { return drive_(work, until); }

   private:
    Function drive_;
  };
  return std::make_shared<Driver>(std::move(function));
}

TEST(Work, TheWaiterDrivesAndTheWaitEndsWithTheWork) {
  int calls = 0;
  const auto asked = Clock::now() + std::chrono::hours(1);
  const auto driver = driver_of([&](Work& driven, Clock::time_point until) {
    ++calls;
    EXPECT_EQ(until, asked);
    driven.complete({});
    return true;
  });
  Work work(driver);
  EXPECT_TRUE(work.wait(asked).ok());
  EXPECT_TRUE(work.wait(asked).ok());
  EXPECT_EQ(calls, 1);  // there was nothing left to drive
}

TEST(Work, ADriverThatCannotDriveLeavesTheWaiterToSleep) {
  std::latch asked(1);
  const auto driver = driver_of([&](Work&, Clock::time_point) {
    asked.count_down();
    return false;
  });
  Work work(driver);
  std::thread waiter([&] { EXPECT_TRUE(work.wait().ok()); });
  asked.wait();
  work.complete({});
  waiter.join();
}

TEST(Work, TellsOnceWhenItIsDoneOrAtOnce) {
  Work work;
  std::vector<int> told;
  work.on_done([&] { told.push_back(work.done() && !work.wait().ok() ? 1 : -1); });
  work.on_done([&] { told.push_back(2); });
  EXPECT_TRUE(told.empty());
  work.complete(KOLO_ERROR(kAborted, "the cause"));
  EXPECT_EQ(told, (std::vector{1, 2}));
  work.on_done([&] { told.push_back(3); });
  EXPECT_EQ(told, (std::vector{1, 2, 3}));
}

TEST(WorkDeathTest, CompletesOnce) {
  Work work;
  work.complete({});
  EXPECT_DEATH(work.complete({}), "broken invariant");
}

}  // namespace
}  // namespace kolo
