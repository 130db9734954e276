// Ranks that leave, and the effect on ranks that wait meanwhile, over in-process ranks.
#include "tests/support/local_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

namespace kolo::test::shutdown_test {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(Shutdown, AfterThePartIsDoneHarmsNobody) {
  run_local_world(4, [](int rank, Runtime& runtime) {
    // Ranks leave right after their last operation, in any order.
    for (int step = 0; step < 5; ++step) {
      std::vector<float> values(1000, static_cast<float>(rank));
      const Status status = submit(runtime, allreduce_of("t", values))->wait();
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
  });
}

TEST(Shutdown, ARankThatLeavesEarlyIsNamed) {
  // An abort may overtake the end of an earlier operation on a slow rank.
  std::barrier all_have_the_first(3);
  run_local_world(3, [&](int rank, Runtime& runtime) {
    std::vector<float> values(10, 1.0F);
    ASSERT_TRUE(submit(runtime, allreduce_of("first", values))->wait().ok());
    all_have_the_first.arrive_and_wait();
    if (rank == 2) return;
    auto second = runtime.submit(allreduce_of("second", values));
    if (!second.ok()) {
      // The other survivor's failure came first.
      EXPECT_THAT(second.error().message, HasSubstr("rank 2 has shut down"));
      return;
    }
    const Status status = (*second)->wait();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
    EXPECT_THAT(status.error().message,
                HasSubstr("rank 2 has shut down and will never submit it; a rank that makes fewer "
                          "calls than the others calls join() before it ends"));
    const auto later = runtime.submit(allreduce_of("third", values));
    ASSERT_FALSE(later.ok());
    EXPECT_EQ(later.error().code, ErrorCode::kAborted);
    EXPECT_THAT(later.error().message, HasSubstr("rank 2 has shut down"));
  });
}

// Not all ranks hear of the end of each operation.
TEST(Shutdown, WhoWaitsForAMessageHearsThatItsSenderHasLeft) {
  constexpr int kRanks = 66;
  constexpr int kReceiver = 5;
  constexpr int kSender = 40;
  LocalWorldOptions options;
  options.variables = {{"KOLO_OPERATION_TIMEOUT", "60"}};
  for (int rank = 0; rank < kRanks; ++rank) options.hosts.push_back(rank);
  std::latch has_heard(1);
  run_local_world(
      kRanks,
      [&](int rank, Runtime& runtime) {
        float value = 0;
        std::shared_ptr<Work> receive;
        if (rank == kReceiver) {
          Submission message;
          message.signature = {.kind = OperationKind::kReceive, .root = kSender, .shape = {1}};
          message.output = reinterpret_cast<std::byte*>(&value);
          auto submitted = runtime.submit_message(std::move(message));
          ASSERT_TRUE(submitted.ok()) << submitted.error().message;
          receive = *std::move(submitted);
        }
        std::vector<float> values(1);
        ASSERT_TRUE(submit(runtime, allreduce_of("it waits", values))->wait().ok());
        if (rank == kSender) return;
        if (rank == kReceiver) {
          const Status status = receive->wait(std::chrono::steady_clock::now() + 20s);
          has_heard.count_down();
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().message,
                    "rank 5: recv from rank 40 with tag 0: rank 40 has shut down and will never "
                    "call send()");
        }
        has_heard.wait();
      },
      options);
}

TEST(Shutdown, OperationsUnderWayFail) {
  std::barrier submitted(2);
  run_local_world(2, [&](int rank, Runtime& runtime) {
    if (rank == 1) {
      submitted.arrive_and_wait();
      return;
    }
    std::vector<float> values(10, 1.0F);
    const auto work = submit(runtime, allreduce_of("lonely", values));
    std::thread waiter([&] {
      const Status status = work->wait();
      ASSERT_FALSE(status.ok());
      EXPECT_THAT(status.error().code, testing::AnyOf(ErrorCode::kShutdown, ErrorCode::kPeerLost));
    });
    runtime.shut_down();
    runtime.shut_down();
    submitted.arrive_and_wait();
    waiter.join();
    EXPECT_FALSE(runtime.submit(allreduce_of("late", values)).ok());
  });
}

// For example at the end of a process in which a signal handler never returns.
TEST(Shutdown, WhoKeepsTheTokenKeepsAnEndThatIsBounded) {
  run_local_world(1, [](int, Runtime& runtime) {
    std::latch holds(1);
    std::latch let_go(1);
    std::vector<float> values(3, 1.0F);
    Submission gathers = allreduce_of("gathers", values);
    gathers.signature.kind = OperationKind::kAllgather;
    gathers.allocate = [&](const Shape&) {
      holds.count_down();
      let_go.wait();
      return reinterpret_cast<std::byte*>(values.data());
    };
    const auto work = submit(runtime, std::move(gathers));
    holds.wait();
    EXPECT_FALSE(runtime.shut_down(std::chrono::steady_clock::now() + 5ms));
    let_go.count_down();
    EXPECT_TRUE(runtime.shut_down());
    EXPECT_TRUE(work->done());
    EXPECT_TRUE(runtime.shut_down()) << "again";
  });
}

// Uses freed memory if a waiting thread still needs anything of the runtime.
TEST(Shutdown, WhoWaitsMayOutliveTheRuntime) {
  for (int round = 0; round < 50; ++round) {
    std::vector<float> values(10, 1.0F);
    std::array<std::thread, 3> waiters;
    std::latch waiting(waiters.size());
    run_local_world(1, [&](int, Runtime& runtime) {
      // The operation waits for the rest of its group, which never comes.
      Submission lonely = allreduce_of("lonely", values);
      lonely.signature.group = "pair";
      lonely.signature.group_size = 2;
      const auto work = submit(runtime, std::move(lonely));
      for (std::thread& waiter : waiters) {
        waiter = std::thread([&waiting, work] {
          waiting.count_down();
          while (!work->done()) static_cast<void>(work->wait(std::chrono::steady_clock::now()));
        });
      }
      waiting.wait();
    });
    for (std::thread& waiter : waiters) waiter.join();
  }
}

}  // namespace
}  // namespace kolo::test::shutdown_test
