// Proves the schedules of recursive halving and doubling with the checker for every size up to 64,
// and compares messages and elements with the file head of the algorithm.
#include "runtime/collectives/allreduce_halving_doubling.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <bit>

namespace kolo::test::allreduce_halving_doubling_test {
namespace {

class AllreduceHalvingDoubling : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AllreduceHalvingDoubling, ::testing::Range(1, kLargestWorld + 1));

TEST_P(AllreduceHalvingDoubling, SumsEveryElementOnceInOneOrder) {
  const int size = GetParam();
  const auto ranks = static_cast<std::uint64_t>(size);
  for (const std::uint64_t count :
       std::set<std::uint64_t>{0, 1, 2, ranks - 1, ranks, 3 * ranks + 1})
    for (const bool input_is_output : {false, true}) {
      const auto schedules = schedules_of(
          size, [&](int rank) { return allreduce_halving_doubling(rank, size, count); });
      prove(schedules, {.input_is_output = input_is_output});
    }
}

TEST_P(AllreduceHalvingDoubling, SendsAsFewMessagesAsATreeAndAsFewElementsAsARing) {
  const int size = GetParam();
  const auto q = std::bit_floor(static_cast<unsigned>(size));
  const std::uint64_t count = 8 * q;
  const auto schedules =
      schedules_of(size, [&](int rank) { return allreduce_halving_doubling(rank, size, count); });
  const Traffic traffic = prove(schedules, {});
  const auto rounds = static_cast<std::uint64_t>(std::bit_width(q) - 1);
  for (int rank = 0; rank < size; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const bool is_extra = r >= q;
    const std::uint64_t folded = r + q < static_cast<std::size_t>(size) ? 1 : 0;
    EXPECT_EQ(traffic.messages[r], is_extra ? 1 : 2 * rounds + folded);
    EXPECT_EQ(traffic.elements[r], is_extra ? count : 2 * count * (q - 1) / q + folded * count);
  }
}

TEST(AllreduceHalvingDoublingParts, LieOnCacheLinesWhereTheyAreLong) {
  for (int rank = 0; rank < 4; ++rank) {
    const Schedule schedule = allreduce_halving_doubling(rank, 4, 10'001);
    for (const Step& step : schedule.steps)
      if (step.kind == StepKind::kReduce) {
        EXPECT_EQ(schedule.destinations(step).front().offset % 64, 0U);
      }
  }
}

}  // namespace
}  // namespace kolo::test::allreduce_halving_doubling_test
