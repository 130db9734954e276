// Proves that broadcasts with a preceding barrier are still right, for every size up to 64, and
// that each sender waits for the whole barrier.
#include "runtime/collectives/meet_first.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

namespace kolo::test::meet_first_test {
namespace {

constexpr std::uint64_t kChunk = 32;

class MeetFirst : public ::testing::TestWithParam<int> {};

TEST_P(MeetFirst, BroadcastsStayRightAndTheirSendsWait) {
  const int size = GetParam();
  const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size - 1)));
  for (const int root : roots_of(size))
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, 5 * kChunk})
      for (const bool staged : {false, true}) {
        const auto make = [&](bool meets) {
          return schedules_of(size, [&](int rank) {
            return make_schedule({.kind = OperationKind::kBroadcast,
                                  .rank = rank,
                                  .size = size,
                                  .root = root,
                                  .count = count,
                                  .chunk_elements = kChunk,
                                  .staged = staged,
                                  .meets_first = meets});
          });
        };
        const auto schedules = make(true);
        const CheckOptions options{.kind = OperationKind::kBroadcast, .root = root};
        EXPECT_EQ(prove(schedules, options).elements, prove(make(false), options).elements);
        for (const Schedule& schedule : schedules)
          for (const Step& step : schedule.steps) {
            if (step.kind != StepKind::kSend) continue;
            const auto after = schedule.depends_on(step);
            EXPECT_EQ(std::count_if(
                          after.begin(), after.end(),
                          [&](StepId id) { return schedule.steps[id].kind == StepKind::kWait; }),
                      rounds);
          }
      }
}

INSTANTIATE_TEST_SUITE_P(Sizes, MeetFirst, ::testing::Range(1, kLargestWorld + 1));

}  // namespace
}  // namespace kolo::test::meet_first_test
