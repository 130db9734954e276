// How a rank waits for another one. Where other programs use the cores, a rank that goes on looking
// takes the core from the rank that it waits for, and the scheduler holds it back afterwards.
// Passes and blocks are counted, so the test does not depend on the scheduler.
#include "tests/support/faulty_transport.h"
#include "tests/support/local_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::test::waiting_test {
namespace {

/// Passes of a rank's driver over the transport, and how often it was about to block.
struct Counts {
  std::atomic<int> passes = 0;
  std::atomic<int> blocks = 0;
};

class CountedTransport final : public FaultyTransport {
 public:
  CountedTransport(std::unique_ptr<Transport> inner, Counts& counts)
      : FaultyTransport(std::move(inner), [](const FaultyCall&) { return Fault::kNone; }),
        counts_(counts) {}
  bool progress() override {
    ++counts_.passes;
    return FaultyTransport::progress();
  }
  bool arm() override {
    ++counts_.blocks;
    return FaultyTransport::arm();
  }

 private:
  Counts& counts_;
};

enum class Call { kSmallInOrder, kLargeInOrder, kNamed };

TEST(Waiting, ARankBlocksAfterABoundedNumberOfPassesWithoutProgress) {
  constexpr int kBlocks = 30;
  constexpr int kPassesABlock = 450;
  // Beside other programs a call may poll for 4 ms more, and its wait, too: 1.4 us or more a pass.
  constexpr int kPatientPasses = 6'000;
  for (const Call call : {Call::kSmallInOrder, Call::kLargeInOrder, Call::kNamed}) {
    Counts counts;
    std::atomic<int> until = -1;
    const auto make = [&](Runtime& runtime) {
      std::vector<float> values(call == Call::kSmallInOrder ? 1 : 1 << 16, 1);
      if (call == Call::kNamed) {
        EXPECT_TRUE(submit(runtime, allreduce_of("x", values))->wait().ok());
      } else {
        auto* const memory = reinterpret_cast<std::byte*>(values.data());
        EXPECT_TRUE(runtime
                        .allreduce_ordered(memory, memory, static_cast<std::int64_t>(values.size()),
                                           DataType::kFloat32, ReduceOp::kSum)
                        .ok());
      }
      EXPECT_EQ(values.front(), 2);
    };
    run_local_world(2,
                    [&](int rank, Runtime& runtime) {
                      if (rank == 1) {
                        while (until < 0 || counts.blocks < until) std::this_thread::yield();
                        return make(runtime);
                      }
                      const int passes = counts.passes;
                      const int blocks = counts.blocks;
                      until = blocks + kBlocks;
                      make(runtime);
                      EXPECT_LE(counts.passes - passes,
                                kPassesABlock * (counts.blocks - blocks + 2) + kPatientPasses)
                          << "in " << counts.blocks - blocks << " blocks";
                    },
                    {.hosts = {0, 1}, .decorate = [&](int rank, std::unique_ptr<Transport> inner) {
                       if (rank == 1) return inner;
                       return std::unique_ptr<Transport>(
                           std::make_unique<CountedTransport>(std::move(inner), counts));
                     }});
  }
}

TEST(Waiting, AnInOrderCallThatARankDoesNotComeToIsReported) {
  LocalWorldOptions options;
  options.variables = {{"KOLO_OPERATION_TIMEOUT", "2"}, {"KOLO_STALL_WARNING", "1"}};
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1} << 20}) {
    std::latch over(2);
    testing::internal::CaptureStderr();
    run_local_world(
        3,
        [&](int rank, Runtime& runtime) {
          std::vector<float> values(static_cast<std::size_t>(count), 1.0F);
          if (rank == 1) {
            over.wait();
            return;
          }
          auto* const memory = reinterpret_cast<std::byte*>(values.data());
          const Status status =
              runtime.allreduce_ordered(memory, memory, count, DataType::kFloat32, ReduceOp::kSum);
          EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
          over.count_down();
        },
        options);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::ContainsRegex(
                    "kolo 0. warning: allreduce .* has not ended for 1 s .KOLO_STALL_WARNING.*"
                    "waits for rank"));
  }
}

}  // namespace
}  // namespace kolo::test::waiting_test
