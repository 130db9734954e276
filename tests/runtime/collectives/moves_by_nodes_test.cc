// Proves the schedules of allgather, broadcast and reduce-scatter by NUMA nodes with the checker,
// and compares their traffic with the file heads of the algorithms.
#include "runtime/collectives/allgather_numa.h"
#include "runtime/collectives/reduce_scatter_numa.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <vector>

namespace kolo::test::moves_by_nodes_test {
namespace {

// The proof's time grows with the cube of the ranks: larger worlds prove only the richest cases.
constexpr int kManyRanks = 16;

/// Nodes of several sizes, whose ranks lie in blocks or by turns.
std::vector<HostLayout> layouts_of(int size) {
  std::vector<std::vector<int>> all(3, std::vector<int>(static_cast<std::size_t>(size)));
  for (int rank = 0; rank < size; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    all[0][r] = rank % 3;
    all[1][r] = rank == size - 1 ? 1 : 0;
    all[2][r] = rank * std::min(size, 8) / size;
  }
  if (size > kManyRanks) all.erase(all.begin(), all.end() - 1);
  return {all.begin(), all.end()};
}

void prove_all_ways(const std::vector<Schedule>& schedules, CheckOptions options,
                    const MappedOptions& mapped) {
  const std::size_t ranks = schedules.size();
  std::vector<bool> thirds(ranks);
  for (std::size_t rank = 0; rank < ranks; rank += 3) thirds[rank] = true;
  for (const bool in_place : {false, true})
    for (const auto& direct : {thirds, {}, std::vector<bool>(ranks, true)}) {
      options.input_is_output = in_place;
      options.direct_inputs = direct;
      const Traffic traffic = prove(schedules, options);
      for (const std::uint64_t sent : traffic.elements) EXPECT_EQ(sent, 0U) << "signals alone";
      if (ranks > kManyRanks) return;
    }
  for (const Schedule& schedule : schedules)
    EXPECT_LE(schedule.scratch_elements,
              static_cast<std::uint64_t>(mapped.pipeline_slots) * mapped.block_elements);
}

class MovesByNodes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, MovesByNodes, ::testing::Range(2, kLargestWorld + 1));

/// Uneven parts on nodes of all kinds. `make` writes the schedule of (rank, nodes, parts, options);
/// a slot of two has room for `elements` of each rank.
template <class Make>
void prove_uneven(OperationKind kind, int size, std::uint64_t elements, const Make& make) {
  const auto ranks = static_cast<std::uint64_t>(size);
  std::vector<Counts> counts = uneven_counts(size);
  if (size > kManyRanks) counts = {counts[3]};
  for (const HostLayout& nodes : layouts_of(size))
    for (const Counts& parts : counts)
      for (const MappedOptions& mapped :
           {MappedOptions{.block_elements = ranks, .pipeline_slots = 1},
            {.block_elements = elements * ranks, .pipeline_slots = 2}})
        prove_all_ways(
            schedules_of(size, [&](int rank) { return make(rank, nodes, parts, mapped); }),
            {.kind = kind, .counts = parts}, mapped);
}

TEST_P(MovesByNodes, AllgatherIsRightForUnevenParts) {
  prove_uneven(OperationKind::kAllgather, GetParam(), 2, allgather_numa);
}

TEST_P(MovesByNodes, BroadcastIsRightFromEveryKindOfRoot) {
  const int size = GetParam();
  for (const HostLayout& nodes : layouts_of(size))
    for (const int root : roots_of(size))
      for (const std::uint64_t count : {0U, 1U, 4U, 23U})
        for (const MappedOptions& mapped : {MappedOptions{.block_elements = 4, .pipeline_slots = 1},
                                            {.block_elements = 3, .pipeline_slots = 3}})
          prove_all_ways(
              schedules_of(
                  size, [&](int rank) { return broadcast_numa(rank, nodes, root, count, mapped); }),
              {.kind = OperationKind::kBroadcast, .root = root}, mapped);
}

TEST_P(MovesByNodes, ReduceScatterIsRightForUnevenParts) {
  prove_uneven(OperationKind::kReduceScatter, GetParam(), 3, reduce_scatter_numa);
}

/// Elements that all ranks read in the windows of other nodes.
std::uint64_t far_elements(const HostLayout& nodes, const std::vector<Schedule>& schedules) {
  std::uint64_t far = 0;
  for (const Schedule& schedule : schedules)
    for (const Operand& operand : schedule.operands)
      if (operand.space == Space::kPeer &&
          nodes.host_of(operand.rank) != nodes.host_of(schedule.rank))
        far += operand.length;
  return far;
}

TEST(MovesByNodesTraffic, EachNodeReadsAPieceOfAnotherOnce) {
  constexpr std::uint64_t kRanks = 32, kCount = 64 * 100;
  const HostLayout nodes = layouts_of(kRanks).back();
  ASSERT_EQ(nodes.hosts(), 8);
  const MappedOptions mapped{.block_elements = 64 * 64, .pipeline_slots = 2};
  const Counts parts(kRanks, kCount);
  EXPECT_EQ(far_elements(nodes, schedules_of(kRanks,
                                             [&](int rank) {
                                               return allgather_numa(rank, nodes, parts, mapped);
                                             })),
            kRanks * kCount * 7);
  EXPECT_EQ(far_elements(nodes, schedules_of(kRanks,
                                             [&](int rank) {
                                               return broadcast_numa(rank, nodes, 5, kCount,
                                                                     mapped);
                                             })),
            kCount * 7);
  EXPECT_EQ(far_elements(nodes, schedules_of(kRanks,
                                             [&](int rank) {
                                               return reduce_scatter_numa(rank, nodes, parts,
                                                                          mapped);
                                             })),
            kRanks * kCount * 7);
}

}  // namespace
}  // namespace kolo::test::moves_by_nodes_test
