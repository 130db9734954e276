// Proves the schedules of the halving reduce-scatter with the checker for every size up to 64.
#include "runtime/collectives/reduce_scatter_halving.h"

#include "runtime/collectives/fold.h"
#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <bit>

namespace kolo::test::reduce_scatter_halving_test {
namespace {

class ReduceScatterHalving : public ::testing::TestWithParam<int> {};

TEST_P(ReduceScatterHalving, IsRightForUnevenParts) {
  const int size = GetParam();
  for (const Counts& counts : uneven_counts(size))
    for (const bool input_is_output : {false, true}) {
      const auto schedules =
          schedules_of(size, [&](int rank) { return reduce_scatter_halving(rank, size, counts); });
      const Traffic traffic = prove(schedules, {.kind = OperationKind::kReduceScatter,
                                                .counts = counts,
                                                .input_is_output = input_is_output});
      for (int rank = 0; rank < size; ++rank) {
        const Fold fold(rank, size);
        const auto rounds =
            static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(fold.members())) - 1);
        const auto r = static_cast<std::size_t>(rank);
        EXPECT_LE(traffic.messages[r], fold.is_folded() ? 1 : rounds + (fold.has_folded() ? 1 : 0));
        if (fold.is_folded()) {
          EXPECT_EQ(traffic.elements[r], total(counts));
          continue;
        }
        // A member sends everything but its own and its partner's part, and then the partner's
        // part.
        EXPECT_EQ(traffic.elements[r], total(counts) - counts[r]);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ReduceScatterHalving, ::testing::Range(1, kLargestWorld + 1));

}  // namespace
}  // namespace kolo::test::reduce_scatter_halving_test
