// Join: ranks whose data has run out take part with zeros until all have joined.
#include "runtime/submission/unnamed.h"
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <latch>
#include <string>
#include <tuple>
#include <vector>

namespace kolo::test::join_test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

std::shared_ptr<Work> join(Runtime& runtime) {
  Submission submission;
  submission.signature.kind = OperationKind::kJoin;
  return submit(runtime, submission);
}

class Join : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Join, testing::Values(1, 2, 3, 5));

TEST_P(Join, RanksWithFewerBatchesContributeZeros) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      // Rank r has 3 r + 2 batches of three tensors, one of them unnamed.
      for (int batch = 0; batch < 3 * rank + 2; ++batch) {
        int working = 0;
        float sum = 0;
        for (int r = 0; r < size; ++r) {
          if (batch >= 3 * r + 2) continue;
          ++working;
          sum += static_cast<float>(r + 1);
        }
        std::vector<float> summed(1000, static_cast<float>(rank + 1));
        std::vector<float> mean(17, static_cast<float>(rank + 1));
        std::vector<float> unnamed(5, static_cast<float>(rank + 1));
        const auto works = {submit(runtime, allreduce_of("sum", summed)),
                            submit(runtime, allreduce_of("mean", mean, ReduceOp::kAverage)),
                            submit(runtime, allreduce_of("", unnamed))};
        for (const auto& work : works) ASSERT_DONE(work);
        ASSERT_EQ(summed.back(), sum);
        ASSERT_FLOAT_EQ(mean.back(), sum / static_cast<float>(working));
        ASSERT_EQ(unnamed.back(), sum);
        ASSERT_EQ((*works.begin())->contributors(), working);
      }
      const auto work = join(runtime);
      ASSERT_DONE(work);
      EXPECT_EQ(work->outcome().value, size - 1) << "the last rank has the most batches";
      // All ranks are back.
      std::vector<float> all(3, 1.0F);
      ASSERT_DONE(submit(runtime, allreduce_of("all", all, ReduceOp::kAverage)));
      EXPECT_EQ(all.front(), 1.0F);
    }
  });
}

TEST(Join, ComesAfterUnnamedCallsThatWaitForTheirName) {
  constexpr int kCalls = 3 * static_cast<int>(kUnnamedNames) + 1;
  run_local_world(2, [](int rank, Runtime& runtime) {
    for (int epoch = 0; epoch < 5; ++epoch) {
      // Rank 1 has as many calls again; rank 0 makes none of these.
      std::vector<std::vector<float>> values(static_cast<std::size_t>(kCalls * (1 + rank)),
                                             std::vector<float>(3, static_cast<float>(rank + 1)));
      std::vector<std::shared_ptr<Work>> works;
      for (auto& call : values) works.push_back(submit(runtime, allreduce_of("", call)));
      ASSERT_DONE(join(runtime));
      for (std::size_t i = 0; i < works.size(); ++i) {
        ASSERT_DONE(works[i]);
        ASSERT_EQ(values[i].back(), i < kCalls ? 3.0F : 2.0F) << "call " << i;
      }
    }
  });
}

TEST(Join, EndsAfterWhatTheOthersHaveNotWaitedFor) {
  LocalWorldOptions options;
  options.hosts = {0, 1};
  run_local_world(
      2,
      [](int rank, Runtime& runtime) {
        // Each tensor is too large to be fused, and there are more than run at once.
        std::vector<std::vector<float>> values(rank == 1 ? 12 : 0,
                                               std::vector<float>(1 << 19, 3.0F));
        std::vector<std::shared_ptr<Work>> works;
        for (auto& call : values)
          works.push_back(submit(runtime, allreduce_of(std::to_string(works.size()), call)));
        ASSERT_DONE(join(runtime));
        // Rank 0 has joined by now.
        for (std::size_t i = 0; i < works.size(); ++i) {
          EXPECT_TRUE(works[i]->done());
          ASSERT_DONE(works[i]);
          EXPECT_EQ(values[i].back(), 3.0F);
        }
      },
      options);
}

TEST(Join, TellsWhoCameLast) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    for (int last = 0; last < 3; ++last) {
      if (rank == last) {
        // This is done once the others have joined; otherwise it would wait for them.
        std::vector<float> values(3, 1.0F);
        ASSERT_DONE(submit(runtime, allreduce_of("only", values)));
        EXPECT_EQ(values.front(), 1.0F);
      }
      const auto work = join(runtime);
      ASSERT_DONE(work);
      EXPECT_EQ(work->outcome().value, last);
    }
  });
}

TEST(Join, WhatZerosCannotJoinFailsOnTheOthers) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    if (rank != 1) {
      Rows<float> rows{std::vector<float>(4, 1.0F), {}, {}};
      const std::pair<OperationKind, std::string> kinds[] = {
          {OperationKind::kAllgather, "allgather"},
          {OperationKind::kAlltoall, "alltoall"},
          {OperationKind::kReduceScatter, "reducescatter"},
          {OperationKind::kGather, "gather"},
          {OperationKind::kScatter, "scatter"},
          {OperationKind::kBarrier, "barrier"}};
      for (const auto& [kind, word] : kinds) {
        auto submission = rows_of(kind, "t", rows, {4});
        const bool deals = kind == OperationKind::kAlltoall || kind == OperationKind::kScatter;
        submission.splits = deals ? Splits{1, 1, 2} : Splits{};
        const Status status = submit(runtime, submission)->wait();
        ASSERT_FALSE(status.ok()) << word;
        EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
        EXPECT_EQ(status.error().message,
                  "tensor 't': rank 1 has joined, and " + word +
                      " cannot be done without; only allreduce with sum or average can, so join() "
                      "after the last other operation");
      }
      std::vector<float> values(4, 1.0F);
      auto broadcast = allreduce_of("t", values);
      broadcast.signature.kind = OperationKind::kBroadcast;
      EXPECT_THAT(submit(runtime, broadcast)->wait().error().message,
                  HasSubstr("and broadcast cannot be done without"));
      ASSERT_DONE(submit(runtime, allreduce_of("t", values)));
      EXPECT_EQ(values.front(), 2.0F);
    }
    ASSERT_DONE(join(runtime));
    std::vector<float> values(4, 1.0F);
    ASSERT_DONE(submit(runtime, allreduce_of("t", values)));
    EXPECT_EQ(values.front(), 3.0F);
  });
}

/// Ranks on one host or on two; rank 0 joins before or after the others' call.
class JoinAndOrderedCall
    : public testing::TestWithParam<std::tuple<std::vector<int>, OperationKind, std::size_t>> {};
INSTANTIATE_TEST_SUITE_P(
    Kinds, JoinAndOrderedCall,
    testing::Combine(testing::Values(std::vector{0, 0, 0}, std::vector{0, 1, 1}),
                     testing::Values(OperationKind::kAllreduce, OperationKind::kBroadcast),
                     testing::Values(std::size_t{1}, std::size_t{1} << 18)));

TEST_P(JoinAndOrderedCall, FailsOnAllRanksAtOnce) {
  const auto& [hosts, kind, count] = GetParam();
  LocalWorldOptions options;
  options.hosts = hosts;
  for (const bool joins_first : {true, false}) {
    std::latch warm(3);
    std::latch joined(1);
    std::latch called(2);
    run_local_world(
        3,
        [&](int rank, Runtime& runtime) {
          std::vector<float> values(count, 1.0F);
          auto* const memory = reinterpret_cast<std::byte*>(values.data());
          const auto call = [&, kind = kind] {
            return runtime.start_ordered({.kind = kind,
                                          .input = memory,
                                          .output = memory,
                                          .count = static_cast<std::int64_t>(values.size()),
                                          .root = 1},
                                         nullptr);
          };
          ASSERT_DONE(*call());  // all ranks make this call
          warm.arrive_and_wait();
          Status status;
          if (rank == 0) {
            if (!joins_first) called.wait();
            const auto work = join(runtime);
            joined.count_down();
            status = work->wait();
          } else {
            if (joins_first) joined.wait();
            const auto work = call();
            called.count_down();
            // A broadcast may end at its root before the root hears of the join.
            status = work.ok() ? (*work)->wait() : work.error();
            while (status.ok())
              status =
                  runtime.allreduce_ordered(memory, memory, 1, DataType::kFloat32, ReduceOp::kSum);
          }
          ASSERT_FALSE(status.ok());
          EXPECT_THAT(status.error().message,
                      HasSubstr("which all ranks must call, but rank 0 has joined"));
          // A call that comes after another rank's has failed is refused with that failure.
          EXPECT_THAT(status.error().code,
                      AnyOf(ErrorCode::kInvalidArgument,
                            rank == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kAborted));
        },
        options);
  }
}

TEST(Join, OrderedCallsGoOnOnceAllHaveJoined) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    float one = 1;
    auto* const memory = reinterpret_cast<std::byte*>(&one);
    for (int epoch = 0; epoch < 20; ++epoch) {
      one = 1;
      ASSERT_TRUE(
          runtime.allreduce_ordered(memory, memory, 1, DataType::kFloat32, ReduceOp::kSum).ok());
      ASSERT_EQ(one, 3.0F);
      for (int batch = 0; batch < (rank + epoch) % 3; ++batch) {
        std::vector<float> values(3, 1.0F);
        ASSERT_DONE(submit(runtime, allreduce_of("t", values)));
      }
      ASSERT_DONE(join(runtime));
    }
  });
}

TEST(Join, ThatSomeNeverCallEndsWithTheirNumbers) {
  LocalWorldOptions options;
  options.variables = {{"KOLO_OPERATION_TIMEOUT", "2"}, {"KOLO_STALL_WARNING", "1"}};
  std::latch over(2);
  testing::internal::CaptureStderr();
  run_local_world(
      4,
      [&](int rank, Runtime& runtime) {
        // Unnamed calls are counted; ranks that have joined have another count than the others.
        std::vector<float> values(3, 1.0F);
        if (rank % 2 == 0) {
          over.wait();
        } else {
          const auto joined = join(runtime);
          const auto start = std::chrono::steady_clock::now();
          const Status status = joined->wait();
          EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
          EXPECT_EQ(status.error().message,
                    "join(): called by ranks 1, 3; not by ranks 0, 2, silent for 2 s; each rank "
                    "must call it, or go on submitting (KOLO_OPERATION_TIMEOUT)");
          over.count_down();
        }
        ASSERT_DONE(submit(runtime, allreduce_of("", values)));
        EXPECT_EQ(values.front(), 4.0F);
        const auto again = join(runtime);
        ASSERT_DONE(again);
      },
      options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("join(): called by ranks 1, 3; not by ranks 0, 2, silent for 1 s"));
}

TEST(Join, WaitsForAsLongAsOthersWork) {
  LocalWorldOptions options;
  options.variables["KOLO_OPERATION_TIMEOUT"] = "1";
  run_local_world(
      2,
      [](int rank, Runtime& runtime) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
        while (rank == 0 && std::chrono::steady_clock::now() < until) {
          std::vector<float> values(3, 1.0F);
          ASSERT_DONE(submit(runtime, allreduce_of("t", values)));
        }
        ASSERT_DONE(join(runtime));
      },
      options);
}

TEST(Join, OfAProcessSetIsItsOwn) {
  LocalWorldOptions options;
  options.process_sets = {{0, 1}};
  run_local_world(
      3,
      [](int rank, Runtime& runtime) {
        std::shared_ptr<Work> joined;
        if (rank < 2) {
          if (rank == 1) {
            std::vector<float> values(3, 5.0F);
            Submission submission = allreduce_of("t", values, ReduceOp::kAverage);
            submission.process_set = 1;
            ASSERT_DONE(submit(runtime, submission));
            EXPECT_EQ(values.front(), 5.0F);
          }
          Submission submission;
          submission.signature.kind = OperationKind::kJoin;
          submission.process_set = 1;
          joined = submit(runtime, submission);
        }
        // The world continues with all three ranks.
        std::vector<float> values(3, 1.0F);
        ASSERT_DONE(submit(runtime, allreduce_of("t", values)));
        EXPECT_EQ(values.front(), 3.0F);
        if (joined) {
          ASSERT_DONE(joined);
          EXPECT_EQ(joined->outcome().value, 1);
        }
      },
      options);
}

}  // namespace
}  // namespace kolo::test::join_test
