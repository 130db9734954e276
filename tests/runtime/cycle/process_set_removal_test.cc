// Removing process sets beside other threads that still call on them: what is under way keeps a
// set, who comes too late is told, and the next set in its place sees nothing of it.
#include "tests/support/local_world.h"
#include "tests/support/process_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace kolo::test {
namespace {

using testing::HasSubstr;

/// A sum of the set, over the boards.
Status sum(Runtime& runtime, std::uint32_t set, std::array<float, 8>& values) {
  auto* const memory = reinterpret_cast<std::byte*>(values.data());
  return runtime.call_ordered({.input = memory, .output = memory, .count = 8, .process_set = set});
}

TEST(ProcessSetRemoval, WaitsForOrderedOperations) {
  std::barrier refused(3);
  run_local_world(3, [&](int rank, Runtime& runtime) {
    const std::uint32_t set = added(runtime, {0, 1});
    std::vector<float> values(100'000, 1.0F);
    Submission call = allreduce_of("", values);
    call.process_set = set;
    std::shared_ptr<Work> work;
    if (rank == 0) work = *runtime.submit_ordered(call);
    EXPECT_THAT(removed(runtime, set).error().message,
                HasSubstr("1 operations are in flight on process set 1; wait for them first"));
    refused.arrive_and_wait();
    if (rank == 1) work = *runtime.submit_ordered(call);
    if (work != nullptr) {
      const Status status = work->wait();
      ASSERT_TRUE(status.ok()) << status.error().message;
      EXPECT_EQ(values.back(), 2.0F);
    }
    refused.arrive_and_wait();
    EXPECT_TRUE(removed(runtime, set).ok());
    EXPECT_THAT(runtime.submit_ordered(call).error().message,
                HasSubstr("there is no process set 1"));
  });
}

TEST(ProcessSetRemoval, WaitsForMessages) {
  std::barrier refused(3);
  run_local_world(3, [&](int rank, Runtime& runtime) {
    const std::uint32_t set = added(runtime, {0, 1});
    std::vector<float> values(100'000, static_cast<float>(rank));
    Submission message = allreduce_of("", values);
    message.process_set = set;
    message.signature.kind = rank == 0 ? OperationKind::kReceive : OperationKind::kSend;
    message.signature.root = 1 - rank;
    std::shared_ptr<Work> work;
    // First a receive that meets nothing yet, then nothing.
    if (rank == 0) work = *runtime.submit_message(message);
    EXPECT_THAT(removed(runtime, set).error().message,
                HasSubstr("1 operations are in flight on process set 1; wait for them first"));
    refused.arrive_and_wait();
    if (rank == 1) work = *runtime.submit_message(message);
    if (work != nullptr) {
      const Status status = work->wait();
      ASSERT_TRUE(status.ok()) << status.error().message;
      EXPECT_EQ(values.back(), 1.0F);
    }
    refused.arrive_and_wait();
    EXPECT_TRUE(removed(runtime, set).ok());
  });
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
            return;  // it is gone
          } else {
            ASSERT_THAT(status.error().message, HasSubstr("is being removed"));
            // Callers that only yield keep the removal from its cores.
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          }
        }
      });
      // The calls end, if nothing else does.
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
}  // namespace kolo::test
