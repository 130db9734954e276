// Proves the pairwise alltoall's schedules with the checker for every size up to 64.
#include "runtime/collectives/alltoall_pairwise.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

namespace kolo::test::alltoall_pairwise_test {
namespace {

class AlltoallPairwise : public ::testing::TestWithParam<int> {};

TEST_P(AlltoallPairwise, IsRightForUnevenParts) {
  const int size = GetParam();
  const auto ranks = static_cast<std::size_t>(size);
  for (const Counts& matrix : uneven_matrices(size))
    for (const int window : {1, 4}) {
      const PipelineOptions options{.chunk_elements = 2, .chunks_in_flight = window};
      const auto schedules = schedules_of(size, [&](int rank) {
        return alltoall_pairwise(rank, size, shortened(matrix), options);
      });
      const Traffic traffic =
          prove(schedules, {.kind = OperationKind::kAlltoall, .counts = matrix});
      for (std::size_t r = 0; r < ranks; ++r) {
        std::uint64_t elements = 0, messages = 0;
        for (std::size_t to = 0; to < ranks; ++to) {
          if (to == r) continue;
          elements += matrix[r * ranks + to];
          messages += (matrix[r * ranks + to] + 1) / 2;
        }
        EXPECT_EQ(traffic.elements[r], elements);
        EXPECT_EQ(traffic.messages[r], messages);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AlltoallPairwise, ::testing::Range(1, kLargestWorld + 1));

TEST(AlltoallPairwiseShape, NoRankIsSentToTwiceInAStep) {
  const int size = 6;
  std::vector<std::set<int>> receivers(size);  // by step
  for (int rank = 0; rank < size; ++rank) {
    const Schedule schedule =
        alltoall_pairwise(rank, size, Counts(static_cast<std::size_t>(size * size), 1), {});
    std::size_t k = 0;
    for (const Step& step : schedule.steps)
      if (step.kind == StepKind::kSend) {
        EXPECT_TRUE(receivers[k++].insert(step.peer).second);
      }
    EXPECT_EQ(k, size - 1U);
  }
}

}  // namespace
}  // namespace kolo::test::alltoall_pairwise_test
