// Proves the schedules of Bruck's allgather with the checker for every size up to 64.
#include "runtime/collectives/allgather_bruck.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <bit>

namespace kolo::test::allgather_bruck_test {
namespace {

class AllgatherBruck : public ::testing::TestWithParam<int> {};

TEST_P(AllgatherBruck, IsRightForUnevenParts) {
  const int size = GetParam();
  const auto rounds = static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(size - 1)));
  for (const Counts& counts : uneven_counts(size))
    for (const bool in_place : {false, true}) {
      const auto schedules = schedules_of(
          size, [&](int rank) { return allgather_bruck(rank, size, counts, in_place); });
      const Traffic traffic =
          prove(schedules,
                {.kind = OperationKind::kAllgather, .counts = counts, .input_is_output = in_place});
      EXPECT_EQ(total(traffic.elements), (counts.size() - 1) * total(counts));
      for (const std::uint64_t messages : traffic.messages) EXPECT_LE(messages, rounds);
      for (const Schedule& schedule : schedules)
        EXPECT_EQ(schedule.scratch_elements, total(counts));
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllgatherBruck, ::testing::Range(1, kLargestWorld + 1));

TEST(AllgatherBruckShape, SendsAndReceivesFromScratchAlone) {
  // So the user's memory may be scattered.
  const Schedule schedule = allgather_bruck(2, 6, Counts{1, 2, 3, 0, 5, 6}, false);
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::kSend) {
      EXPECT_EQ(schedule.sources(step).front().space, Space::kScratch);
    }
    if (step.kind == StepKind::kReceive) {
      EXPECT_EQ(schedule.destinations(step).front().space, Space::kScratch);
    }
  }
}

}  // namespace
}  // namespace kolo::test::allgather_bruck_test
