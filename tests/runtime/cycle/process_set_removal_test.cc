// Removing process sets while other threads still call on them. Operations in flight keep a set,
// late calls fail, and the next set in the partition sees nothing of them.
#include "tests/support/local_world.h"
#include "tests/support/process_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::test::process_set_removal_test {
namespace {

using testing::HasSubstr;

/// An all-reduce of the set over the control segments.
Status sum(Runtime& runtime, std::uint32_t set, std::array<float, 8>& values) {
  auto* const memory = reinterpret_cast<std::byte*>(values.data());
  return runtime.call_ordered({.input = memory, .output = memory, .count = 8, .process_set = set});
}

/// On ranks 0 and 1: `begin` calls on the set with 100,000 values; rank 0 calls before the others
/// know of it. The last value becomes `expected` on both.
void expect_removal_waits(
    const std::function<Result<std::shared_ptr<Work>>(int rank, Runtime& runtime, Submission call)>&
        begin,
    float initial_of_rank_0, float expected) {
  std::barrier refused(3);
  run_local_world(3, [&](int rank, Runtime& runtime) {
    const std::uint32_t set = added(runtime, {0, 1});
    std::vector<float> values(100'000, rank == 0 ? initial_of_rank_0 : 1.0F);
    Submission call = allreduce_of("", values);
    call.process_set = set;
    std::shared_ptr<Work> work;
    if (rank == 0) work = *begin(rank, runtime, call);
    EXPECT_THAT(removed(runtime, set).error().message,
                HasSubstr("1 operations are in flight on process set 1; wait for them first"));
    refused.arrive_and_wait();
    if (rank == 1) work = *begin(rank, runtime, call);
    if (work != nullptr) {
      const Status status = work->wait();
      ASSERT_TRUE(status.ok()) << status.error().message;
      EXPECT_EQ(values.back(), expected);
    }
    refused.arrive_and_wait();
    EXPECT_TRUE(removed(runtime, set).ok());
    EXPECT_THAT(begin(rank, runtime, call).error().message, HasSubstr("there is no process set 1"));
  });
}

TEST(ProcessSetRemoval, WaitsForNoCallThatWasRefused) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    for (int i = 0; i < 100; ++i) {
      const std::uint32_t set = added(runtime, {0, 1});
      if (rank < 2) {
        const Status refused = runtime.call_ordered({.count = 8, .process_set = set});
        ASSERT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << refused.error().message;
      }
      const Status status = removed(runtime, set);
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
  });
}

TEST(ProcessSetRemoval, WaitsForOrderedOperations) {
  expect_removal_waits([](int, Runtime& runtime,
                          Submission call) { return runtime.submit_ordered(std::move(call)); },
                       1.0F, 2.0F);
}

// A receive that has no send yet.
TEST(ProcessSetRemoval, WaitsForMessages) {
  expect_removal_waits(
      [](int rank, Runtime& runtime, Submission call) {
        call.signature.kind = rank == 0 ? OperationKind::kReceive : OperationKind::kSend;
        call.signature.root = 1 - rank;
        return runtime.submit_message(std::move(call));
      },
      0.0F, 1.0F);
}

TEST(ProcessSetRemoval, LateCallersAreToldAndTheNextSetSeesNothingOfThem) {
  constexpr int kRanks = 3;
  constexpr int kCalls = 20;
  // The last rank is not in the set.
  run_local_world(kRanks + 1, [](int rank, Runtime& runtime) {
    for (int round = 0; round < 10; ++round) {
      const std::uint32_t set = added(runtime, {0, 1, 2});
      std::thread caller([&] {
        for (int call = 0; call < kCalls && rank < kRanks;) {
          std::array<float, 8> values;
          values.fill(static_cast<float>(rank + call));
          const Status status = sum(runtime, set, values);
          if (status.ok()) {
            ASSERT_EQ(values[7], static_cast<float>(3 * call + 3));
            ++call;
          } else if (!runtime.ranks_of(set).ok()) {
            return;  // the set is gone
          } else {
            ASSERT_THAT(status.error().message, HasSubstr("is being removed"));
            // Callers that only yield would keep the removal from its cores.
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          }
        }
      });
      // The calls end even if nothing else does.
      for (Status status = removed(runtime, set); !status.ok(); status = removed(runtime, set))
        ASSERT_THAT(status.error().message, HasSubstr("operations are in flight"));
      const std::uint32_t next = added(runtime, {0, 1, 2});
      for (int call = 0; call < kCalls && rank < kRanks; ++call) {
        std::array<float, 8> values;
        values.fill(static_cast<float>(100 * rank + call));
        const Status status = sum(runtime, next, values);
        ASSERT_TRUE(status.ok()) << status.error().message;
        ASSERT_EQ(values[7], static_cast<float>(300 + 3 * call));
      }
      caller.join();
      ASSERT_TRUE(removed(runtime, next).ok());
    }
  });
}

}  // namespace
}  // namespace kolo::test::process_set_removal_test
