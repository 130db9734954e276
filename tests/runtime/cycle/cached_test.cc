// Tensors that are announced by a bit of the response cache, beside announcements in full: of
// another shape, without a contribution, from ranks that join, and from ranks that never come.
#include "tests/support/rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <latch>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test::cached_test {
namespace {

using testing::HasSubstr;

/// Every rank contributes 1 to "t" until it is remembered.
void remember(Runtime& runtime, int size) {
  for (int step = 0; step < 2; ++step) {
    std::vector<float> values(4, 1.0F);
    ASSERT_DONE(submit(runtime, allreduce_of("t", values)));
    ASSERT_EQ(values.back(), static_cast<float>(size));
  }
}

TEST(Cached, AnotherShapeOnOneRankIsAMismatchAndTheNextWorks) {
  for (const int odd : {0, 1, 2}) {
    run_local_world(3, [&](int rank, Runtime& runtime) {
      remember(runtime, 3);
      for (int step = 0; step < 10; ++step) {
        std::vector<float> values(rank == odd ? 5 : 4, 1.0F);
        const Status status = submit(runtime, allreduce_of("t", values))->wait();
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
        EXPECT_THAT(status.error().message, HasSubstr("[4]"));
        EXPECT_THAT(status.error().message, HasSubstr("[5]"));
        remember(runtime, 3);
      }
    });
  }
}

TEST(Cached, RanksAtDifferentStepsNeverMeet) {
  for (const std::string capacity : {"0", "16"}) {
    for (const int odd : {0, 1, 2}) {
      const auto program = [&](int rank, Runtime& runtime) {
        std::uint64_t step = 0;
        const auto call = [&](const std::string& name, std::vector<float>& values) {
          auto submission = allreduce_of(name, values);
          submission.step = step;
          return submit(runtime, std::move(submission));
        };
        for (int round = 0; round < 10; ++round) {
          ++step;
          std::vector<float> values(4, 1.0F);
          std::vector<float> others(4, 1.0F);
          const auto work = call("t", values);
          ASSERT_DONE(call("u", others));
          ASSERT_DONE(work);
          EXPECT_EQ(values.back(), 3.0F);
          step += rank == odd ? 2 : 1;  // this rank has skipped a step
          const auto failed = call("t", values);
          EXPECT_FALSE(call("u", others)->wait().ok());
          const Status status = failed->wait();
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
          EXPECT_THAT(status.error().message, HasSubstr(fmt::format("rank {} has left", odd)));
          step = static_cast<std::uint64_t>(failed->outcome().value);
        }
        EXPECT_EQ(step, 30U) << "all count on from there";
      };
      run_local_world(3, program, {.variables = {{"KOLO_CACHE_CAPACITY", capacity}}});
    }
  }
}

TEST(Cached, AnotherShapeOnAllRanksIsRememberedAnew) {
  run_local_world(3, [&](int, Runtime& runtime) {
    remember(runtime, 3);
    for (int step = 0; step < 3; ++step) {
      std::vector<float> values(7, 1.0F);
      ASSERT_DONE(submit(runtime, allreduce_of("t", values)));
      EXPECT_EQ(values.back(), 3.0F);
    }
    const auto counters = runtime.negotiation_counters();
    EXPECT_EQ(counters.requests, 2U);
    EXPECT_EQ(counters.cached, 3U);
  });
}

TEST(Cached, ARankWithoutAContributionIsCounted) {
  for (const int absent : {0, 1, 2}) {
    run_local_world(3, [&](int rank, Runtime& runtime) {
      remember(runtime, 3);
      for (int step = 0; step < 10; ++step) {
        std::vector<float> values(4, 1.0F);
        auto submission = allreduce_of("t", values);
        submission.absent = rank == absent;
        const auto work = submit(runtime, submission);
        ASSERT_DONE(work);
        EXPECT_EQ(work->contributors(), 2);
        EXPECT_EQ(values.back(), 2.0F);
      }
      remember(runtime, 3);
    });
  }
}

TEST(Cached, ARankThatJoinsIsNotWaitedFor) {
  for (const int early : {0, 1, 2}) {
    run_local_world(3, [&](int rank, Runtime& runtime) {
      remember(runtime, 3);
      for (int epoch = 0; epoch < 5; ++epoch) {
        if (rank != early) {
          std::vector<float> values(4, 1.0F);
          std::vector<float> more(4, 2.0F);
          const auto first = submit(runtime, allreduce_of("t", values));
          const auto second = submit(runtime, allreduce_of("u", more));
          ASSERT_DONE(first);
          ASSERT_DONE(second);
          EXPECT_EQ(values.back(), 2.0F);
          EXPECT_EQ(more.back(), 4.0F);
        }
        Submission join;
        join.signature.kind = OperationKind::kJoin;
        ASSERT_DONE(submit(runtime, join));
        remember(runtime, 3);
      }
    });
  }
}

TEST(Cached, ATensorThatARankNeverSubmitsFailsByNameAndTheNextWorks) {
  LocalWorldOptions options;
  options.variables = {{"KOLO_OPERATION_TIMEOUT", "1"}, {"KOLO_STALL_WARNING", "60"}};
  for (const int late : {0, 2}) {
    std::latch over(2);
    run_local_world(
        3,
        [&](int rank, Runtime& runtime) {
          remember(runtime, 3);
          if (rank != late) {
            std::vector<float> values(4, 1.0F);
            const Status status = submit(runtime, allreduce_of("t", values))->wait();
            over.count_down();
            ASSERT_FALSE(status.ok());
            EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
            EXPECT_THAT(status.error().message,
                        HasSubstr("missing on rank " + std::to_string(late)));
          }
          over.wait();
          std::vector<float> next(2, 1.0F);
          ASSERT_DONE(submit(runtime, allreduce_of("next", next)));
          EXPECT_EQ(next.back(), 3.0F);
        },
        options);
  }
}

TEST(Cached, BesideNewTensorsInOneBatch) {
  run_local_world(4, [&](int rank, Runtime& runtime) {
    for (int step = 0; step < 20; ++step) {
      std::vector<std::vector<float>> tensors;
      std::vector<std::shared_ptr<Work>> works;
      tensors.reserve(10);
      for (int i = 0; i < 10; ++i) {
        // Every other tensor is new in each step; ranks count differently.
        const int t = (i + rank) % 10;
        tensors.emplace_back(3, static_cast<float>(t));
        const std::string name = t % 2 == 0 ? "old" : "new" + std::to_string(step) + "/";
        works.push_back(submit(runtime, allreduce_of(name + std::to_string(t), tensors.back())));
      }
      for (const auto& work : works) ASSERT_DONE(work);
      for (int i = 0; i < 10; ++i) {
        ASSERT_EQ(tensors[static_cast<std::size_t>(i)].back(),
                  4.0F * static_cast<float>((i + rank) % 10));
      }
    }
  });
}

}  // namespace
}  // namespace kolo::test::cached_test
