// All-reduces that two ranks on two hosts exchange by messages (TwoRankExchange): against an
// operation on the other rank, a late rank, a rank that calls something else, and a transport that
// fails. Ranks are threads. ordered_test.cc checks the sums, too.
#include "runtime/exchange/two_rank_exchange.h"
#include "runtime/device/element.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/local_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

namespace kolo::test::two_rank_exchange_test {
namespace {

constexpr std::size_t kMost = TwoRankExchange::kLargest;

LocalWorldOptions two_hosts() {
  LocalWorldOptions options;
  options.hosts = {0, 1};
  return options;
}

using Bytes = std::vector<std::byte>;

/// Thirds and similar numbers, and first a number whose sum exceeds the type, so that every
/// rounding shows.
Bytes input_of(DataType type, std::size_t count, int rank) {
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i)
    store_element(type, bytes.data() + i * size_of(type),
                  static_cast<double>(i + 1) / (rank == 0 ? 3 : 7));
  store_element(type, bytes.data(), type == DataType::kFloat16 ? 4e4 : 3e38);
  return bytes;
}

Submission ordered(const Bytes& input, Bytes& output, DataType type, ReduceOp op) {
  Submission submission;
  submission.signature.kind = OperationKind::kAllreduce;
  submission.signature.type = type;
  submission.signature.op = op;
  submission.signature.shape = {static_cast<std::int64_t>(input.size() / size_of(type))};
  submission.input = input.data();
  submission.output = output.data();
  return submission;
}

/// Rank 0 waits within its call and uses the two-rank exchange; rank 1 does so every other time.
TEST(TwoRankExchange, MeetsAnOperationBitForBit) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    for (const std::size_t bytes : {size_of(type), std::size_t{64}, kMost, kMost + 8}) {
      std::array<std::vector<Bytes>, 2> outputs;
      run_local_world(
          2,
          [&](int rank, Runtime& runtime) {
            for (int round = 0; round < 6; ++round) {
              const std::size_t count = bytes / size_of(type);
              const Bytes input = input_of(type, count, rank);
              Bytes output(input.size());
              if (rank == 1 && round % 2 == 1) {
                const auto work =
                    runtime.submit_ordered(ordered(input, output, type, ReduceOp::kAverage));
                ASSERT_TRUE(work.ok());
                ASSERT_TRUE((*work)->wait().ok());
              } else {
                const Status status = runtime.allreduce_ordered(input.data(), output.data(),
                                                                static_cast<std::int64_t>(count),
                                                                type, ReduceOp::kAverage);
                ASSERT_TRUE(status.ok()) << status.error().message;
              }
              outputs[static_cast<std::size_t>(rank)].push_back(std::move(output));
            }
          },
          two_hosts());
      EXPECT_EQ(outputs[0], outputs[1]);
      for (const Bytes& output : outputs[0]) EXPECT_EQ(output, outputs[0].front());
    }
  }
}

TEST(TwoRankExchange, TradesUpToItsLargestUnlessAnAlgorithmIsForced) {
  for (const bool forced : {false, true}) {
    // Number of messages of the first in-order operation, by size.
    std::map<std::size_t, int> sent;
    LocalWorldOptions options = two_hosts();
    if (forced) options.variables = {{"KOLO_ALGORITHM", "ring"}};
    options.decorate = [&](int rank, std::unique_ptr<Transport> inner) {
      return std::make_unique<FaultyTransport>(std::move(inner), [&, rank](const FaultyCall& call) {
        const bool is_ordered = call.tag.communicator == static_cast<std::uint32_t>(1);
        if (rank == 0 && is_ordered && call.kind == FaultyCall::Kind::kSend) ++sent[call.length];
        return Fault::kNone;
      });
    };
    run_local_world(
        2,
        [&](int, Runtime& runtime) {
          EXPECT_EQ(runtime.info().two_rank_bytes, forced ? 0 : kMost);
          std::vector<float> values(kMost / sizeof(float), 1);
          auto* const data = reinterpret_cast<std::byte*>(values.data());
          const auto count = static_cast<std::int64_t>(values.size());
          ASSERT_TRUE(
              runtime.allreduce_ordered(data, data, count, DataType::kFloat32, ReduceOp::kSum)
                  .ok());
          EXPECT_EQ(values.back(), 2);
        },
        options);
    // Whole in one message, or in the ring's two halves.
    EXPECT_EQ(sent[kMost], forced ? 0 : 1);
    EXPECT_EQ(sent[kMost / 2], forced ? 2 : 0);
  }
}

TEST(TwoRankExchange, ARankThatNeverComesIsNamedAfterTheDeadline) {
  LocalWorldOptions options = two_hosts();
  options.variables = {{"KOLO_OPERATION_TIMEOUT", "1"}};
  std::atomic<bool> seen = false;
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        float value = 1;
        auto* const data = reinterpret_cast<std::byte*>(&value);
        if (rank == 1) {
          while (!seen) std::this_thread::yield();
          return;
        }
        const Status status =
            runtime.allreduce_ordered(data, data, 1, DataType::kFloat32, ReduceOp::kSum);
        seen = true;
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
        EXPECT_THAT(status.error().message,
                    testing::HasSubstr("allreduce of 1 float32 by sum as call 0 waits for rank 1"));
      },
      options);
}

TEST(TwoRankExchange, OtherSizesAreRefused) {
  run_local_world(
      2,
      [](int rank, Runtime& runtime) {
        std::vector<float> values(8, 1);
        auto* const data = reinterpret_cast<std::byte*>(values.data());
        const Status status = runtime.allreduce_ordered(data, data, rank == 0 ? 4 : 8,
                                                        DataType::kFloat32, ReduceOp::kSum);
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message, testing::HasSubstr("allreduce of 4 float32 by sum"));
        EXPECT_THAT(status.error().message, testing::HasSubstr("allreduce of 8 float32 by sum"));
      },
      two_hosts());
}

/// Rank 0 uses the two-rank exchange; rank 1 uses it too, or submits an operation.
TEST(TwoRankExchange, OtherCallsOfTheSameLengthAreRefused) {
  for (const bool takes_two_rank : {true, false}) {
    run_local_world(
        2,
        [&](int rank, Runtime& runtime) {
          const Bytes input(64);
          Bytes output(64);
          Status status;
          if (rank == 0) {
            status = runtime.allreduce_ordered(input.data(), output.data(), 16, DataType::kFloat32,
                                               ReduceOp::kSum);
          } else if (takes_two_rank) {
            status = runtime.allreduce_ordered(input.data(), output.data(), 16, DataType::kInt32,
                                               ReduceOp::kMax);
          } else {
            const auto work =
                runtime.submit_ordered(ordered(input, output, DataType::kInt32, ReduceOp::kMax));
            ASSERT_TRUE(work.ok());
            status = (*work)->wait();
          }
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
          const std::string& text = status.error().message;
          EXPECT_THAT(text, testing::HasSubstr("rank 0 calls allreduce of 16 float32 by sum"));
          EXPECT_THAT(text, testing::HasSubstr("rank 1 calls allreduce of 16 int32 by max"));
        },
        two_hosts());
  }
}

TEST(TwoRankExchange, AMessageThatFailsFailsTheCallAndAllThatFollow) {
  for (const auto kind : {FaultyCall::Kind::kSend, FaultyCall::Kind::kReceive}) {
    LocalWorldOptions options = two_hosts();
    options.decorate = [&](int rank, std::unique_ptr<Transport> inner) {
      return std::make_unique<FaultyTransport>(std::move(inner), [=](const FaultyCall& call) {
        const bool is_third = call.tag.communicator == 1 && call.tag.operation == 2;
        return rank == 0 && is_third && call.kind == kind ? Fault::kFail : Fault::kNone;
      });
    };
    run_local_world(
        2,
        [&](int rank, Runtime& runtime) {
          std::int32_t value = 1;
          auto* const data = reinterpret_cast<std::byte*>(&value);
          Status status;
          int calls = 0;
          for (; status.ok() && calls < 10; ++calls)
            status = runtime.allreduce_ordered(data, data, 1, DataType::kInt32, ReduceOp::kSum);
          ASSERT_FALSE(status.ok());
          if (rank == 0) {
            EXPECT_EQ(calls, 3);
            const char* const doing =
                kind == FaultyCall::Kind::kSend ? "sending to rank 1" : "receiving from rank 1";
            EXPECT_THAT(status.error().message, testing::HasSubstr(doing));
          }
          EXPECT_FALSE(
              runtime.allreduce_ordered(data, data, 1, DataType::kInt32, ReduceOp::kSum).ok());
        },
        options);
  }
}

}  // namespace
}  // namespace kolo::test::two_rank_exchange_test
