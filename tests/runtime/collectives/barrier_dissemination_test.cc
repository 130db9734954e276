// Proves the dissemination barrier with the checker for every size up to 64: no rank leaves before
// all have arrived.
#include "runtime/collectives/barrier_dissemination.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <bit>

namespace kolo::test::barrier_dissemination_test {
namespace {

TEST(BarrierDissemination, HoldsEveryRankUntilAllHaveCome) {
  for (int size = 1; size <= kLargestWorld; ++size) {
    const auto schedules =
        schedules_of(size, [&](int rank) { return barrier_dissemination(rank, size); });
    prove(schedules, {.kind = OperationKind::kBarrier});
    const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size - 1)));
    for (const Schedule& schedule : schedules) EXPECT_EQ(schedule.steps.size(), 2 * rounds);
  }
}

}  // namespace
}  // namespace kolo::test::barrier_dissemination_test
