// Proves the schedules of recursive doubling with the checker for every size up to 64, as sums and
// as Adasum: each contribution comes once, and all ranks combine in the same tree.
#include "runtime/collectives/allreduce_recursive_doubling.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <bit>

namespace kolo::test::allreduce_recursive_doubling_test {
namespace {

TEST(AllreduceRecursiveDoubling, CombinesAllVectorsInOneTree) {
  for (int size = 1; size <= kLargestWorld; ++size)
    for (const std::uint64_t count : {0U, 1U, 7U})
      for (const bool input_is_output : {false, true}) {
        const auto schedules = schedules_of(
            size, [&](int rank) { return allreduce_recursive_doubling(rank, size, count); });
        prove(schedules, {.input_is_output = input_is_output});
        const Traffic traffic =
            prove(schedules, {.is_adasum = true, .input_is_output = input_is_output});
        const int doubling = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
        const auto rounds =
            static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(doubling)) - 1);
        for (int rank = 0; rank < size; ++rank) {
          const auto r = static_cast<std::size_t>(rank);
          const std::uint64_t folded = rank + doubling < size ? 1 : 0;
          const std::uint64_t messages = rank >= doubling ? 1 : rounds + folded;
          EXPECT_EQ(traffic.messages[r], count == 0 ? 0 : messages);
          EXPECT_EQ(traffic.elements[r], messages * count);
          EXPECT_EQ(schedules[r].scratch_elements, size == 1 ? 0 : 2 * count);
        }
      }
}

TEST(AllreduceRecursiveDoubling, PutsTheLowerRanksVectorFirst) {
  const Operand own{Space::kScratch, -1, 0, 5}, other{Space::kScratch, -1, 5, 5};
  for (int rank = 0; rank < 2; ++rank) {
    const Schedule schedule = allreduce_recursive_doubling(rank, 2, 5);
    for (const Step& step : schedule.steps)
      if (step.kind == StepKind::kReduce) {
        EXPECT_EQ(schedule.sources(step).front(), rank == 0 ? own : other);
      }
  }
}

}  // namespace
}  // namespace kolo::test::allreduce_recursive_doubling_test
