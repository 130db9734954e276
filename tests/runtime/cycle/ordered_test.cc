// In-order submission: blocking all-reduces in program order, small ones by control segments
// (Exchange) if ranks share memory, and the errors when ranks are late, gone or disagree.
#include "runtime/device/element.h"
#include "tests/support/sanitizers.h"
#include "tests/support/sized_worlds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <tuple>

namespace kolo::test::ordered_test {
namespace {

struct Call {
  DataType type;
  ReduceOp op;
  std::size_t count;
  bool in_place;
};

/// Calls that are the same on every rank; sizes around a cache line and around the limit for small
/// calls.
std::vector<Call> calls_of(unsigned seed, int number) {
  constexpr std::size_t kCounts[] = {0,      1,      6,      7,      8,     14,
                                     15,     1000,   2048,   4096,   4097,  10'000,
                                     16'384, 16'385, 32'768, 32'769, 70'000};
  std::mt19937 random(seed);
  std::vector<Call> calls;
  while (static_cast<int>(calls.size()) < number) {
    const Call call{static_cast<DataType>(random() % kDataTypeCount),
                    static_cast<ReduceOp>(random() % kReduceOpCount),
                    kCounts[random() % std::size(kCounts)], random() % 2 == 0};
    if (is_supported(call.type, call.op) && call.op != ReduceOp::kAdasum) calls.push_back(call);
  }
  return calls;
}

double input_of(const Call& call, std::size_t element, int rank) {
  const auto value = static_cast<double>(element % 3 + static_cast<std::size_t>(rank % 2));
  if (call.type == DataType::kBool) return static_cast<double>(value > 1);
  // A product of ones and a few twos stays within every type.
  return call.op == ReduceOp::kProduct ? (value > 2 ? 2 : 1) : value;
}

double expected_of(const Call& call, std::size_t element, int size) {
  double result = input_of(call, element, 0);
  for (int rank = 1; rank < size; ++rank) {
    const double next = input_of(call, element, rank);
    if (call.op == ReduceOp::kMin) result = std::min(result, next);
    if (call.op == ReduceOp::kMax) result = std::max(result, next);
    if (call.op == ReduceOp::kProduct) result *= next;
    if (call.op == ReduceOp::kSum || call.op == ReduceOp::kAverage) result += next;
  }
  if (call.type == DataType::kBool) return static_cast<double>(result > 0);
  return result;
}

/// Parameters: the size of the world and KOLO_SHARED_MEMORY.
class InOrder : public SizedWorlds {};
INSTANTIATE_TEST_SUITE_P(SizesAndWindows, InOrder,
                         testing::Combine(testing::Values(1, 2, 3, 5, 9),
                                          testing::Values("0", "1M")));

void run_call(Runtime& runtime, const Call& call, int rank, int size) {
  const std::size_t element = size_of(call.type);
  std::vector<std::byte> input(call.count * element + 1);
  for (std::size_t i = 0; i < call.count; ++i)
    store_element(call.type, input.data() + i * element, input_of(call, i, rank));
  std::vector<std::byte> other(input.size());
  std::byte* const output = call.in_place ? input.data() : other.data();
  const Status status = runtime.allreduce_ordered(
      input.data(), output, static_cast<std::int64_t>(call.count), call.type, call.op);
  ASSERT_TRUE(status.ok()) << status.error().message;
  for (std::size_t i = 0; i < call.count; ++i) {
    const double expected = expected_of(call, i, size);
    const double value = load_element(call.type, output + i * element);
    if (call.op == ReduceOp::kAverage) {
      // Integers truncate, halves round.
      ASSERT_NEAR(value, expected / size, 1) << i;
      if (call.type == DataType::kFloat64) {
        ASSERT_DOUBLE_EQ(value, expected / size) << i;
      }
    } else {
      ASSERT_EQ(value, expected) << to_string(call.type) << " " << to_string(call.op) << " " << i;
    }
  }
}

TEST_P(InOrder, EverySizeTypeAndOperationInAnyOrder) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        for (const Call& call : calls_of(17, kSanitized ? 50 : 150))
          run_call(runtime, call, rank, size());
      },
      options());
}

TEST(InOrderForced, ByEachAlgorithmOfSharedMemory) {
  for (const std::string algorithm : {"one_shot", "two_shot", "mapped"}) {
    LocalWorldOptions options;
    options.variables = {{"KOLO_ALGORITHM", algorithm}, {"KOLO_SHARED_MEMORY", "1M"}};
    run_local_world(
        3,
        [&](int rank, Runtime& runtime) {
          const RuntimeInfo info = runtime.info();
          EXPECT_EQ(info.one_shot_bytes, algorithm == "one_shot" ? 128 << 10 : 0);
          EXPECT_EQ(info.two_shot_bytes, algorithm == "mapped" ? 0 : 128 << 10);
          EXPECT_EQ(info.allreduces.back().algorithm, "mapped");
          for (const Call& call : calls_of(18, kSanitized ? 40 : 80))
            run_call(runtime, call, rank, 3);
        },
        options);
  }
}

TEST_P(InOrder, BesideNegotiatedOnes) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        for (int round = 0; round < (kSanitized ? 2 : 5); ++round) {
          std::vector<float> named(100'000, 1);
          const auto work = submit(runtime, allreduce_of("named", named));
          for (const Call& call : calls_of(static_cast<unsigned>(round), 20))
            run_call(runtime, call, rank, size());
          ASSERT_TRUE(work->wait().ok());
          ASSERT_EQ(named[99'999], static_cast<float>(size()));
        }
      },
      options());
}

TEST_P(InOrder, WaitsForARankThatIsLate) {
  // Late enough for the others to stop spinning and block.
  constexpr std::chrono::milliseconds kLate{20};
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        for (int late = 0; late < size(); ++late) {
          const auto until = std::chrono::steady_clock::now() + kLate;
          while (rank == late && std::chrono::steady_clock::now() < until)
            std::this_thread::yield();
          // One hop, then two hops.
          run_call(runtime, {DataType::kInt32, ReduceOp::kSum, 3, true}, rank, size());
          run_call(runtime, {DataType::kInt32, ReduceOp::kSum, 16'000, true}, rank, size());
        }
      },
      options());
}

TEST(InOrderFailures, DifferentCallsNameBoth) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    std::vector<float> values(8, 1);
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    Status status = runtime.allreduce_ordered(data, data, rank == 1 ? 4 : 8, DataType::kFloat32,
                                              ReduceOp::kSum);
    // A rank whose call matched before the others failed is done; it learns of the failure with the
    // next call.
    if (status.ok())
      status = runtime.allreduce_ordered(data, data, 1, DataType::kFloat32, ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, testing::HasSubstr("calls allreduce of 8 float32 by sum"));
    EXPECT_THAT(status.error().message, testing::HasSubstr("calls allreduce of 4 float32 by sum"));
    EXPECT_THAT(status.error().message, testing::HasSubstr("in the same order"));
  });
}

TEST(InOrderFailures, ARankThatHasShutDownIsNamed) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    std::int32_t value = 1;
    auto* const data = reinterpret_cast<std::byte*>(&value);
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(runtime.allreduce_ordered(data, data, 1, DataType::kInt32, ReduceOp::kSum).ok());
    if (rank == 1) {
      runtime.shut_down();
      return;
    }
    const Status status =
        runtime.allreduce_ordered(data, data, 1, DataType::kInt32, ReduceOp::kSum);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
    EXPECT_THAT(status.error().message, testing::HasSubstr("rank 1 has shut down"));
  });
}

TEST(InOrderFailures, WhatCannotWorkIsRefusedAndTheNextWorks) {
  run_local_world(2, [](int, Runtime& runtime) {
    std::int32_t value = 1;
    auto* const data = reinterpret_cast<std::byte*>(&value);
    EXPECT_FALSE(runtime.allreduce_ordered(data, data, -1, DataType::kInt32, ReduceOp::kSum).ok());
    EXPECT_FALSE(
        runtime.allreduce_ordered(data, data, 1, DataType::kBool, ReduceOp::kAverage).ok());
    EXPECT_TRUE(runtime.allreduce_ordered(data, data, 1, DataType::kInt32, ReduceOp::kSum).ok());
    EXPECT_EQ(value, 2);
  });
}

}  // namespace
}  // namespace kolo::test::ordered_test
