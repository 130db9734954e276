// Proves the ring allgather's schedules with the checker for every size up to 64, and compares
// messages and bytes with the file head of the algorithm.
#include "runtime/collectives/allgather_ring.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

namespace kolo::test::allgather_ring_test {
namespace {

class AllgatherRing : public ::testing::TestWithParam<int> {};

TEST_P(AllgatherRing, IsRightForUnevenParts) {
  const int size = GetParam();
  for (const Counts& counts : uneven_counts(size))
    for (const int window : {1, 3})
      for (const bool in_place : {false, true}) {
        const AllgatherOptions options{
            .pipeline = {.chunk_elements = 3, .chunks_in_flight = window}, .in_place = in_place};
        const auto schedules = schedules_of(
            size, [&](int rank) { return allgather_ring(rank, size, counts, options); });
        const Traffic traffic = prove(
            schedules,
            {.kind = OperationKind::kAllgather, .counts = counts, .input_is_output = in_place});
        for (int rank = 0; rank < size; ++rank) {
          const auto r = static_cast<std::size_t>(rank), next = (r + 1) % counts.size();
          std::uint64_t chunks = 0;
          for (const std::uint64_t count : counts) chunks += (count + 2) / 3;
          EXPECT_EQ(traffic.elements[r], total(counts) - counts[next]);
          EXPECT_EQ(traffic.messages[r], chunks - (counts[next] + 2) / 3);
        }
      }
}

TEST_P(AllgatherRing, LeavesAnInputAloneThatHappensToBeInItsPlace) {
  const int size = GetParam();
  for (const Counts& counts : uneven_counts(size))
    prove(schedules_of(size,
                       [&](int rank) {
                         return allgather_ring(rank, size, counts,
                                               {.pipeline = {.chunk_elements = 3}});
                       }),
          {.kind = OperationKind::kAllgather, .counts = counts, .input_is_output = true});
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllgatherRing, ::testing::Range(1, kLargestWorld + 1));

TEST(AllgatherRingShape, InPlaceNeedsNoInput) {
  const Counts counts = {5, 0, 9};
  for (int rank = 0; rank < 3; ++rank) {
    const Schedule schedule =
        allgather_ring(rank, 3, counts, {.pipeline = {.chunk_elements = 4}, .in_place = true});
    for (const Operand& operand : schedule.operands) EXPECT_EQ(operand.space, Space::kOutput);
    EXPECT_EQ(schedule.scratch_elements, 0U);
  }
}

TEST(AllgatherRingShape, ALongPartPassesThroughAsAPipeline) {
  // A chunk is sent on when it has arrived, not when its whole part has.
  const Schedule schedule =
      allgather_ring(1, 3, Counts{30, 0, 0}, {.pipeline = {.chunk_elements = 3}});
  for (StepId id = 0; id < schedule.steps.size(); ++id) {
    const Step& step = schedule.steps[id];
    if (step.kind != StepKind::kSend) continue;
    EXPECT_EQ(schedule.steps[schedule.depends_on(step).front()].tag, step.tag);
  }
}

}  // namespace
}  // namespace kolo::test::allgather_ring_test
