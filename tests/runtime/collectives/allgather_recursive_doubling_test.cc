// Proves the schedules of the doubling allgather with the checker for every size up to 64, and the
// fold that the doubling algorithms share.
#include "runtime/collectives/allgather_recursive_doubling.h"

#include "runtime/collectives/fold.h"
#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <bit>

namespace kolo::test::allgather_recursive_doubling_test {
namespace {

class AllgatherRecursiveDoubling : public ::testing::TestWithParam<int> {};

TEST_P(AllgatherRecursiveDoubling, IsRightForUnevenParts) {
  const int size = GetParam();
  for (const Counts& counts : uneven_counts(size))
    for (const bool in_place : {false, true}) {
      const auto schedules = schedules_of(size, [&](int rank) {
        return allgather_recursive_doubling(rank, size, counts, in_place);
      });
      const Traffic traffic =
          prove(schedules,
                {.kind = OperationKind::kAllgather, .counts = counts, .input_is_output = in_place});
      for (int rank = 0; rank < size; ++rank) {
        const Fold fold(rank, size);
        const auto rounds =
            static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(fold.members())) - 1);
        const auto r = static_cast<std::size_t>(rank);
        EXPECT_LE(traffic.messages[r], fold.is_folded() ? 1 : rounds + (fold.has_folded() ? 2 : 0));
        EXPECT_EQ(schedules[r].scratch_elements, 0u);
      }
      // Every rank receives each part but its own once.
      EXPECT_EQ(total(traffic.elements), (counts.size() - 1) * total(counts));
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllgatherRecursiveDoubling, ::testing::Range(1, kLargestWorld + 1));

TEST(Fold, PairsNeighboursAndKeepsTheOrder) {
  for (int size = 1; size <= 64; ++size) {
    int next = 0;  // the next member in rank order
    for (int rank = 0; rank < size; ++rank) {
      const Fold fold(rank, size);
      EXPECT_EQ(fold.rank_of(fold.members()), size);
      if (fold.is_folded()) {
        EXPECT_EQ(fold.rank_of(fold.member()), fold.partner());
        EXPECT_EQ(fold.partner(), rank - 1);
        continue;
      }
      EXPECT_EQ(fold.member(), next++);
      EXPECT_EQ(fold.rank_of(fold.member()), rank);
    }
    EXPECT_EQ(next, static_cast<int>(std::bit_floor(static_cast<unsigned>(size))));
  }
}

}  // namespace
}  // namespace kolo::test::allgather_recursive_doubling_test
