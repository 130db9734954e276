// Proves the schedules of the broadcast down two trees with the checker, for every size up to 64
// and every shape of chains.
#include "runtime/collectives/broadcast_double_tree.h"

#include "runtime/collectives/staged_messages.h"
#include "tests/support/proof_cases.h"
#include "tests/support/sanitizers.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kolo::test::broadcast_double_tree_test {
namespace {

using Chains = std::vector<std::vector<int>>;

/// Chains of these lengths; the ranks are numbered from `root` on, round and round.
Chains chains_of(const std::vector<int>& lengths, int size, int root) {
  Chains chains;
  int next = root;
  for (const int length : lengths) {
    chains.emplace_back();
    for (int i = 0; i < length; ++i, ++next) chains.back().push_back(next % size);
  }
  return chains;
}

/// Proves the broadcast of `count` elements, as it is and with its messages through staging memory.
Traffic prove_all(const Chains& chains, int size, std::uint64_t count) {
  const CheckOptions claim{.kind = OperationKind::kBroadcast, .root = chains.front().front()};
  const auto made = [&](int rank) {
    return broadcast_double_tree(rank, chains, count, {.chunk_elements = 3, .chunks_in_flight = 2});
  };
  prove(schedules_of(
            size,
            [&](int rank) { return stage_messages(made(rank), {.slots = 2, .passes_on = true}); }),
        claim);
  return prove(schedules_of(size, made), claim);
}

class BroadcastDoubleTree : public ::testing::TestWithParam<int> {};

TEST_P(BroadcastDoubleTree, IsRightFromEveryRootAndSendsNoMoreThanItReceives) {
  const int size = GetParam();
  for (int root = 0; root < size; ++root)
    for (const std::uint64_t count : {0u, 1u, 3u, 4u, 31u}) {
      SCOPED_TRACE(::testing::Message()
                   << size << " ranks, root " << root << ", " << count << " elements");
      const std::vector<int> alone(static_cast<std::size_t>(size), 1);
      const Traffic traffic = prove_all(chains_of(alone, size, root), size, count);
      EXPECT_EQ(total(traffic.elements), count * static_cast<std::uint64_t>(size - 1));
      // With an odd number of ranks in the trees, one of them has children in both.
      for (const std::uint64_t sent : traffic.elements) EXPECT_LE(sent, count + (count + 1) / 2);
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, BroadcastDoubleTree, ::testing::Range(1, kLargestWorld + 1));

TEST(BroadcastDoubleTreeShape, ChainsOfAnyLengthPassItOn) {
  for (const std::vector<int>& lengths : {std::vector<int>{4},
                                          {1, 3},
                                          {3, 1},
                                          {2, 2, 2},
                                          {1, 2, 3, 4},
                                          {8, 8, 8, 8},
                                          {5, 1, 1, 4, 2}}) {
    int size = 0;
    for (const int length : lengths) size += length;
    for (const int root : {0, size - 1})
      for (const std::uint64_t count : {1u, 31u})
        prove_all(chains_of(lengths, size, root), size, count);
  }
}

TEST(BroadcastDoubleTreeShape, TheLastChunkArrivesAfterFewMessages) {
  // Every chain but the root's is reached over at most 1 + log₂ of the others.
  const int size = 64;
  const std::vector<int> alone(static_cast<std::size_t>(size), 1);
  const Chains chains = chains_of(alone, size, 0);
  std::vector<int> parent(static_cast<std::size_t>(size), -1);
  for (int rank = 0; rank < size; ++rank)
    for (const Step& step : broadcast_double_tree(rank, chains, 1, {}).steps)
      if (step.kind == StepKind::kReceive) parent[static_cast<std::size_t>(rank)] = step.peer;
  for (int rank = 1; rank < size; ++rank) {
    int hops = 0;
    for (int at = rank; at != 0; at = parent[static_cast<std::size_t>(at)]) ++hops;
    EXPECT_LE(hops, 7) << rank;
  }
}

}  // namespace
}  // namespace kolo::test::broadcast_double_tree_test
