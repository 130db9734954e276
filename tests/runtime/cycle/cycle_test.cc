// The whole runtime over the loopback transport: negotiation with any order of submission, fusion,
// and errors that leave the runtime usable.
#include "tests/support/local_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <random>

namespace kolo::test::cycle_test {
namespace {

using testing::HasSubstr;

float sum_of_ranks(int size) { return static_cast<float>(size * (size + 1)) / 2; }

class World : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, World, testing::Values(1, 2, 3, 4, 5, 7));

TEST_P(World, RanksSubmitInAnyOrderForManySteps) {
  const int size = GetParam();
  constexpr int kTensors = 23;
  run_local_world(size, [&](int rank, Runtime& runtime) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<int> order(kTensors);
    for (int i = 0; i < kTensors; ++i) order[static_cast<std::size_t>(i)] = i;
    for (int step = 0; step < 20; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::vector<float>> tensors(kTensors);
      std::vector<std::shared_ptr<Work>> works;
      for (const int i : order) {
        auto& tensor = tensors[static_cast<std::size_t>(i)];
        tensor.assign(static_cast<std::size_t>(i * 37 % 101),
                      static_cast<float>((rank + 1) * (i + 1)));
        works.push_back(submit(runtime, allreduce_of("t" + std::to_string(i), tensor)));
      }
      for (const auto& work : works) {
        const Status status = work->wait();
        ASSERT_TRUE(status.ok()) << status.error().message;
        EXPECT_EQ(work->contributors(), size);
      }
      for (int i = 0; i < kTensors; ++i) {
        for (const float value : tensors[static_cast<std::size_t>(i)]) {
          ASSERT_EQ(value, sum_of_ranks(size) * static_cast<float>(i + 1)) << "tensor " << i;
        }
      }
    }
    // Only the first step is negotiated in full.
    const auto counters = runtime.negotiation_counters();
    EXPECT_EQ(counters.requests, kTensors);
    EXPECT_EQ(counters.cached, kTensors * 19);
  });
}

TEST_P(World, SeveralThreadsSubmitAndWait) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int step = 0; step < 25; ++step) {
          std::vector<float> values(100, static_cast<float>(rank + 1));
          const auto work = submit(runtime, allreduce_of("thread" + std::to_string(t), values));
          const Status status = work->wait();
          ASSERT_TRUE(status.ok()) << status.error().message;
          ASSERT_EQ(values.back(), sum_of_ranks(size));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(World, BothSubmissionModesAtOnce) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    for (int step = 0; step < 20; ++step) {
      std::vector<float> named(5000, static_cast<float>(rank + 1));
      std::vector<float> ordered(777, static_cast<float>(10 * (rank + 1)));
      const auto work = submit(runtime, allreduce_of("named", named, ReduceOp::kAverage));
      // Even ranks wait for the negotiated operation first, odd ranks last.
      if (rank % 2 == 0) {
        ASSERT_TRUE(work->wait().ok());
      }
      const auto direct = runtime.submit_ordered(allreduce_of("", ordered));
      ASSERT_TRUE(direct.ok());
      ASSERT_TRUE((*direct)->wait().ok());
      ASSERT_TRUE(work->wait().ok());
      ASSERT_EQ(named.back(), sum_of_ranks(size) / static_cast<float>(size));
      ASSERT_EQ(ordered.back(), 10 * sum_of_ranks(size));
    }
  });
}

TEST_P(World, BroadcastFromEveryRoot) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    for (int root = 0; root < size; ++root) {
      std::vector<float> values(3001, static_cast<float>(rank));
      Submission submission = allreduce_of("b", values);
      submission.signature.kind = OperationKind::kBroadcast;
      submission.signature.root = root;
      ASSERT_TRUE(submit(runtime, submission)->wait().ok());
      ASSERT_EQ(values, std::vector<float>(3001, static_cast<float>(root)));
    }
  });
}

TEST_P(World, AbsentRanksCountAsZeros) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    std::vector<float> some(10, 5.0F);
    std::vector<float> none(10, 7.0F);
    Submission part = allreduce_of("some", some);
    part.absent = rank != 0;
    Submission nobody = allreduce_of("none", none);
    nobody.absent = true;
    const auto work = submit(runtime, part);
    const auto nothing = submit(runtime, nobody);
    ASSERT_TRUE(work->wait().ok());
    ASSERT_TRUE(nothing->wait().ok());
    EXPECT_EQ(work->contributors(), 1);
    EXPECT_EQ(nothing->contributors(), 0);
    EXPECT_EQ(some, std::vector<float>(10, 5.0F));
    EXPECT_EQ(none, std::vector<float>(10, 7.0F)) << "nobody contributed: left alone";
  });
}

TEST(Mismatch, FailsThatTensorOnEveryRankAndNothingElse) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    for (int round = 0; round < 3; ++round) {
      std::vector<float> odd(rank == 1 ? 4 : 5, 1.0F);
      std::vector<float> fine(6, 1.0F);
      const auto bad = submit(runtime, allreduce_of("odd", odd));
      const auto good = submit(runtime, allreduce_of("fine", fine));
      const Status status = bad->wait();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
      EXPECT_THAT(
          status.error().message,
          HasSubstr("tensor 'odd': ranks 0, 2 submitted shape [5], but rank 1 submitted shape "
                    "[4]"));
      ASSERT_TRUE(good->wait().ok());
      EXPECT_EQ(fine.front(), 3.0F);
      // The name itself stays usable.
      std::vector<float> agreed(5, 1.0F);
      ASSERT_TRUE(submit(runtime, allreduce_of("odd", agreed))->wait().ok());
      EXPECT_EQ(agreed.front(), 3.0F);
    }
  });
}

TEST(Misuse, ADuplicateNameFailsAtTheSecondCall) {
  std::barrier both_tried(2);
  run_local_world(2, [&](int rank, Runtime& runtime) {
    std::vector<float> first(3, 1.0F);
    std::vector<float> second(3, 1.0F);
    std::shared_ptr<Work> work;
    if (rank == 0) {
      work = submit(runtime, allreduce_of("twice", first));
      const auto duplicate = runtime.submit(allreduce_of("twice", second));
      ASSERT_FALSE(duplicate.ok());
      EXPECT_EQ(duplicate.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(duplicate.error().message,
                  HasSubstr("'twice': an operation of this name is in flight"));
    }
    both_tried.arrive_and_wait();
    if (rank == 1) work = submit(runtime, allreduce_of("twice", first));
    ASSERT_TRUE(work->wait().ok());
  });
}

TEST(Misuse, WhatCanNeverWorkFailsOnEveryRank) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    std::vector<float> values(2);
    const auto error = [&](const auto& spoil) {
      Submission submission = allreduce_of("t", values);
      if (rank == 1) spoil(submission);
      return submit(runtime, std::move(submission))->wait().error();
    };
    EXPECT_EQ(error([](Submission& s) {
                s.signature.shape = {2, -1};
              }).message,
              "tensor 't': rank 1: shape [2, -1] is negative");
    EXPECT_EQ(error([](Submission& s) {
                s.signature.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
              }).message,
              "tensor 't': rank 1: shape [1099511627776, 1099511627776] of float32 is more bytes "
              "than there are addresses");
    EXPECT_EQ(error([](Submission& s) { s.output = nullptr; }).message,
              "tensor 't': rank 1: the memory is a null pointer");
    EXPECT_EQ(error([](Submission& s) { s.output += sizeof(float); }).message,
              "tensor 't': rank 1: its input and its output overlap; give an output of its own, or "
              "the input itself, which is in place");
    const Error infinite = error([](Submission& s) { s.signature.prescale = INFINITY; });
    EXPECT_EQ(infinite.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(infinite.message, "tensor 't': rank 1: prescale inf and postscale 1 must be finite");
    EXPECT_EQ(error([](Submission& s) {
                s.signature.kind = OperationKind::kBroadcast;
                s.signature.root = 2;
              }).message,
              "tensor 't': rank 1: root 2 is no rank; ranks are 0 to 1");
    ASSERT_TRUE(submit(runtime, allreduce_of("t", values))->wait().ok());
  });
}

TEST(Timeout, ATensorThatARankNeverSubmitsFailsByName) {
  std::atomic<bool> over = false;
  LocalWorldOptions options;
  options.variables["KOLO_OPERATION_TIMEOUT"] = "1";
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        if (rank == 1) {
          over.wait(false);
          // The runtime survived: both ranks agree on the next tensor.
          std::vector<float> values(4, 1.0F);
          ASSERT_TRUE(submit(runtime, allreduce_of("next", values))->wait().ok());
          return;
        }
        std::vector<float> values(4, 1.0F);
        const Status status = submit(runtime, allreduce_of("forgotten", values))->wait();
        over = true;
        over.notify_all();
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
        EXPECT_THAT(status.error().message,
                    HasSubstr("tensor 'forgotten': submitted by rank 0, missing on rank 1"));
        ASSERT_TRUE(submit(runtime, allreduce_of("next", values))->wait().ok());
      },
      options);
}

TEST(Cache, WithoutRoomEverythingIsNegotiatedInFull) {
  LocalWorldOptions options;
  options.variables["KOLO_CACHE_CAPACITY"] = "0";
  run_local_world(
      2,
      [](int, Runtime& runtime) {
        for (int step = 0; step < 5; ++step) {
          std::vector<float> values(4, 1.0F);
          ASSERT_TRUE(submit(runtime, allreduce_of("t", values))->wait().ok());
        }
        EXPECT_EQ(runtime.negotiation_counters().requests, 5U);
        EXPECT_EQ(runtime.negotiation_counters().cached, 0U);
      },
      options);
}

}  // namespace
}  // namespace kolo::test::cycle_test
