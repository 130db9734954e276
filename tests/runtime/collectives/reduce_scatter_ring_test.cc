// Proves the ring reduce-scatter's schedules with the checker for every size up to 64, and compares
// messages, bytes and scratch with the file head of the algorithm.
#include "runtime/collectives/reduce_scatter_ring.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

namespace kolo::test::reduce_scatter_ring_test {
namespace {

class ReduceScatterRing : public ::testing::TestWithParam<int> {};

TEST_P(ReduceScatterRing, IsRightForUnevenParts) {
  const int size = GetParam();
  for (const Counts& counts : uneven_counts(size))
    for (const int blocks : {1, 2})
      for (const bool in_place : {false, true}) {
        const ReduceScatterOptions options{.chunk_elements = 2, .blocks_in_flight = blocks};
        const auto schedules = schedules_of(
            size, [&](int rank) { return reduce_scatter_ring(rank, size, counts, options); });
        const Traffic traffic = prove(
            schedules,
            {.kind = OperationKind::kReduceScatter, .counts = counts, .input_is_output = in_place});
        std::uint64_t chunks = 0;
        for (const std::uint64_t count : counts) chunks += (count + 1) / 2;
        for (std::size_t r = 0; r < counts.size(); ++r) {
          EXPECT_EQ(traffic.elements[r], total(counts) - counts[r]);
          EXPECT_EQ(traffic.messages[r], chunks - (counts[r] + 1) / 2);
          EXPECT_LE(schedules[r].scratch_elements, static_cast<std::uint64_t>(blocks) * 4 * 2);
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ReduceScatterRing, ::testing::Range(1, kLargestWorld + 1));

TEST(ReduceScatterRingShape, ChunksLieOnCacheLines) {
  const Counts counts = {1000, 64, 0, 129};
  const auto schedules = schedules_of(
      4, [&](int rank) { return reduce_scatter_ring(rank, 4, counts, {.chunk_elements = 256}); });
  prove(schedules, {.kind = OperationKind::kReduceScatter, .counts = counts});
  for (const Schedule& schedule : schedules)
    for (const Operand& operand : schedule.operands) {
      EXPECT_LE(operand.length, 256U);
      if (operand.space == Space::kScratch) {
        EXPECT_EQ(operand.offset % 64, 0U);
      }
    }
}

}  // namespace
}  // namespace kolo::test::reduce_scatter_ring_test
