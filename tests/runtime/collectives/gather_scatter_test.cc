// Proves the schedules of the linear gather and scatter, and of a message from one rank to another,
// with the checker for every size up to 64.
#include "runtime/collectives/gather_linear.h"
#include "runtime/collectives/point_to_point.h"
#include "runtime/collectives/scatter_linear.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

namespace kolo::test::gather_scatter_test {
namespace {

constexpr PipelineOptions kPipeline{.chunk_elements = 3, .chunks_in_flight = 2};

std::uint64_t chunks_of(std::uint64_t count) { return (count + 2) / 3; }

class LinearCollectives : public ::testing::TestWithParam<int> {};

TEST_P(LinearCollectives, GatherIsRightForUnevenParts) {
  const int size = GetParam();
  for (const int root : roots_of(size))
    for (const Counts& counts : uneven_counts(size))
      for (const bool in_place : {false, true}) {
        const auto schedules = schedules_of(size, [&](int rank) {
          return gather_linear(rank, size, root, counts,
                               {.pipeline = kPipeline, .in_place = in_place});
        });
        const Traffic traffic = prove(schedules, {.kind = OperationKind::kGather,
                                                  .root = root,
                                                  .counts = counts,
                                                  .input_is_output = in_place});
        for (int rank = 0; rank < size; ++rank) {
          const auto r = static_cast<std::size_t>(rank);
          EXPECT_EQ(traffic.elements[r], rank == root ? 0 : counts[r]);
          EXPECT_EQ(traffic.messages[r], rank == root ? 0 : chunks_of(counts[r]));
        }
      }
}

TEST_P(LinearCollectives, ScatterIsRightForUnevenParts) {
  const int size = GetParam();
  for (const int root : roots_of(size))
    for (const Counts& counts : uneven_counts(size))
      for (const bool in_place : {false, true}) {
        const auto schedules = schedules_of(size, [&](int rank) {
          return scatter_linear(rank, size, root, counts,
                                {.pipeline = kPipeline, .in_place = in_place});
        });
        const Traffic traffic = prove(schedules, {.kind = OperationKind::kScatter,
                                                  .root = root,
                                                  .counts = counts,
                                                  .input_is_output = in_place});
        const std::uint64_t own = counts[static_cast<std::size_t>(root)];
        for (int rank = 0; rank < size; ++rank)
          EXPECT_EQ(traffic.elements[static_cast<std::size_t>(rank)],
                    rank == root ? total(counts) - own : 0);
      }
}

TEST_P(LinearCollectives, PointToPointIsRightBetweenAnyTwo) {
  const int size = GetParam();
  for (const int from : roots_of(size))
    for (int to = 0; to < size; ++to)
      for (const std::uint64_t count : {0U, 1U, 3U, 22U}) {
        const auto schedules = schedules_of(
            size, [&](int rank) { return point_to_point(rank, size, from, to, count, kPipeline); });
        const Traffic traffic =
            prove(schedules, {.kind = OperationKind::kSend, .root = from, .peer = to});
        for (int rank = 0; rank < size; ++rank) {
          const auto r = static_cast<std::size_t>(rank);
          EXPECT_EQ(traffic.elements[r], rank == from && from != to ? count : 0);
          EXPECT_EQ(traffic.messages[r], rank == from && from != to ? chunks_of(count) : 0);
          if (rank != from && rank != to) {
            EXPECT_TRUE(schedules[r].steps.empty());
          }
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearCollectives, ::testing::Range(1, kLargestWorld + 1));

TEST(LinearCollectivesShape, TheRootServesAllRanksInTurn) {
  const Counts counts = {9, 9, 9, 9};
  const Schedule scatter = scatter_linear(1, 4, 1, counts, {.pipeline = kPipeline});
  std::vector<int> peers;
  for (const Step& step : scatter.steps)
    if (step.kind == StepKind::kSend) peers.push_back(step.peer);
  EXPECT_EQ(peers, (std::vector<int>{2, 3, 0, 2, 3, 0, 2, 3, 0}));

  const Schedule gather = gather_linear(1, 4, 1, counts, {.pipeline = kPipeline});
  peers.clear();
  for (const Step& step : gather.steps)
    if (step.kind == StepKind::kReceive) peers.push_back(step.peer);
  EXPECT_EQ(peers, (std::vector<int>{2, 3, 0, 2, 3, 0, 2, 3, 0}));
}

}  // namespace
}  // namespace kolo::test::gather_scatter_test
