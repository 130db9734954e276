// Proves Bruck's alltoall with the checker for every size up to 64.
#include "runtime/collectives/alltoall_bruck.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <bit>

namespace kolo::test::alltoall_bruck_test {
namespace {

class AlltoallBruck : public ::testing::TestWithParam<int> {};

TEST_P(AlltoallBruck, IsRightForUnevenParts) {
  const int size = GetParam();
  const auto ranks = static_cast<std::size_t>(size);
  const auto rounds = static_cast<std::uint64_t>(std::bit_width(ranks - 1));
  for (const Counts& matrix : uneven_matrices(size)) {
    const auto schedules =
        schedules_of(size, [&](int rank) { return alltoall_bruck(rank, size, shortened(matrix)); });
    const Traffic traffic = prove(schedules, {.kind = OperationKind::kAlltoall, .counts = matrix});
    std::uint64_t sent = 0;
    std::uint64_t hops = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      EXPECT_LE(traffic.messages[r], rounds);
      sent += traffic.elements[r];
      for (std::size_t d = 0; d < ranks; ++d)
        hops += matrix[r * ranks + (r + d) % ranks] * static_cast<std::uint64_t>(std::popcount(d));
    }
    EXPECT_EQ(sent, hops);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AlltoallBruck, ::testing::Range(1, kLargestWorld + 1));

}  // namespace
}  // namespace kolo::test::alltoall_bruck_test
