// KOLO_CHECK_FINITE in a running job: who is told what, by which kind of call.
#include "tests/support/local_world.h"
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <limits>
#include <vector>

namespace kolo::test::finite_check_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LocalWorldOptions with(const char* mode) {
  return {.variables = {{"KOLO_CHECK_FINITE", mode}, {"KOLO_LOG_LEVEL", "off"}}};
}

const testing::Matcher<const std::string&> kNamesRank1 =
    AllOf(HasSubstr("'x'"), HasSubstr("rank 1: "), HasSubstr("its input of 50 elements has 1 NaN"),
          HasSubstr("the first at element 7"));

TEST(CheckFinite, ANegotiatedCallFailsOnAllRanksAndTheNextOneWorks) {
  run_local_world(
      3,
      [](int rank, Runtime& runtime) {
        for (int round = 0; round < 3; ++round) {  // the second by the response cache
          std::vector<float> values(50, 1.0F);
          ASSERT_DONE(submit(runtime, allreduce_of("x", values)));
          EXPECT_EQ(values[7], 3.0F);
          if (rank == 1) values[7] = NAN;
          const Status status = submit(runtime, allreduce_of("x", values))->wait();
          ASSERT_FALSE(status.ok()) << rank;
          EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
          EXPECT_THAT(status.error().message, kNamesRank1);
        }
      },
      with("error"));
}

TEST(CheckFinite, AReduceScatterAndAGroupFailAlike) {
  run_local_world(
      2,
      [](int rank, Runtime& runtime) {
        Rows<float> rows;
        rows.input.assign(50, 1.0F);
        if (rank == 1) rows.input[7] = NAN;
        Status status =
            submit(runtime, rows_of(OperationKind::kReduceScatter, "x", rows, {50}))->wait();
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message, kNamesRank1);

        std::vector<float> first(50, 1.0F), second(50, 1.0F);
        if (rank == 1) second[7] = NAN;
        const auto works =
            runtime.submit_group({allreduce_of("y", first), allreduce_of("x", second)}, "group");
        ASSERT_TRUE(works.ok());
        status = (*works)[1]->wait();
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message, kNamesRank1);
        EXPECT_FALSE((*works)[0]->wait().ok());
      },
      with("error"));
}

TEST(CheckFinite, AnInOrderCallEndsTheJob) {
  for (const std::int64_t count : {50, 500'000}) {
    for (const bool waits : {true, false}) {
      std::barrier all(3);  // an abort may overtake the end of the call before
      run_local_world(
          3,
          [&](int rank, Runtime& runtime) {
            std::vector<double> values(static_cast<std::size_t>(count), 1.0);
            auto* const bytes = reinterpret_cast<std::byte*>(values.data());
            const OrderedArguments call{
                .input = bytes, .output = bytes, .count = count, .type = DataType::kFloat64};
            const auto run = [&]() -> Status {
              if (waits) return runtime.call_ordered(call);
              KOLO_ASSIGN(const auto work, runtime.start_ordered(call, nullptr));
              return work->wait();
            };
            ASSERT_TRUE(run().ok());
            all.arrive_and_wait();
            if (rank == 1) values[7] = std::numeric_limits<double>::infinity();
            const Status status = run();
            ASSERT_FALSE(status.ok());
            EXPECT_THAT(status.error().message,
                        AllOf(HasSubstr("rank 1: in-order allreduce: its input of " +
                                        std::to_string(count) +
                                        " elements has 0 NaN and 1 infinite values"),
                              HasSubstr("the first at element 7")));
          },
          with("error"));
    }
  }
}

TEST(CheckFinite, WarningsChangeNoResult) {
  testing::internal::CaptureStderr();
  run_local_world(2,
                  [](int rank, Runtime& runtime) {
                    std::vector<float> values(50, 1.0F);
                    if (rank == 1) values[7] = NAN;
                    ASSERT_DONE(submit(runtime, allreduce_of("x", values)));
                    EXPECT_TRUE(std::isnan(values[7]));
                    EXPECT_EQ(values[8], 2.0F);
                  },
                  {.variables = {{"KOLO_CHECK_FINITE", "warn"}}});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("[kolo 1] warning: allreduce 'x': its input of 50 elements has 1 NaN"));
}

TEST(CheckFinite, OffLetsAllPass) {
  run_local_world(2, [](int, Runtime& runtime) {
    std::vector<float> values(50, NAN);
    ASSERT_DONE(submit(runtime, allreduce_of("x", values)));
  });
}

}  // namespace
}  // namespace kolo::test::finite_check_test
