// Proves the two trees' schedules with the checker for every size up to 64, and that the trees have
// the shape that the algorithm's file head states.
#include "runtime/collectives/allreduce_double_tree.h"

#include "runtime/collectives/double_tree.h"
#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <set>

namespace kolo::test::allreduce_double_tree_test {
namespace {

class TwoTrees : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, TwoTrees, ::testing::Range(1, kLargestWorld + 1));

TEST_P(TwoTrees, AreTreesOfLogarithmicHeight) {
  const int size = GetParam();
  const DoubleTree trees(size);
  for (int tree = 0; tree < DoubleTree::kTrees; ++tree) {
    int roots = 0;
    for (int rank = 0; rank < size; ++rank) {
      const TreeNode place = trees.node_of(tree, rank);
      for (const int child : place.children)
        if (child >= 0) {
          EXPECT_EQ(trees.node_of(tree, child).parent, rank);
        }
      if (place.parent < 0) {
        ++roots;
      } else {
        const auto children = trees.node_of(tree, place.parent).children;
        EXPECT_EQ(std::count(children.begin(), children.end(), rank), 1);
      }
      int depth = 0;
      for (int up = place.parent; up >= 0 && depth < size; ++depth)
        up = trees.node_of(tree, up).parent;
      EXPECT_LE(depth, trees.height());
    }
    EXPECT_EQ(roots, 1);
  }
}

TEST_P(TwoTrees, ARankHasChildrenInOneOfThem) {
  const int size = GetParam();
  const DoubleTree trees(size);
  int in_both = 0;
  for (int rank = 0; rank < size; ++rank) {
    const auto has_children = [&](int tree) {
      const auto children = trees.node_of(tree, rank).children;
      return children[0] >= 0 || children[1] >= 0;
    };
    in_both += has_children(0) && has_children(1);
  }
  EXPECT_LE(in_both, size % 2);
}

TEST_P(TwoTrees, SumAnyCount) {
  const int size = GetParam();
  const auto ranks = static_cast<std::uint64_t>(size);
  for (const std::uint64_t count : std::set<std::uint64_t>{0, 1, 2, ranks + 1, 101}) {
    const auto schedules = schedules_of(size, [&](int rank) {
      return allreduce_double_tree(rank, size, count, {.chunk_elements = 3, .chunks_in_flight = 2});
    });
    for (const bool input_is_output : {false, true}) {
      const Traffic traffic = prove(schedules, {.input_is_output = input_is_output});
      EXPECT_EQ(total(traffic.elements), 2 * count * (ranks - 1)) << count;
      if (size % 2 == 1) continue;
      // The halves may differ by an element, and a root has one child.
      for (const std::uint64_t sent : traffic.elements) EXPECT_LE(sent, 2 * count + 2) << count;
    }
  }
}

TEST(AllreduceDoubleTree, TakesNoMoreScratchThanItsLanes) {
  // Two trees, pipeline slots for up and down, three chunks each.
  const Schedule schedule = allreduce_double_tree(0, 8, 1 << 20, {.chunk_elements = 1024});
  EXPECT_EQ(schedule.scratch_elements, 2u * (2 * 3 + 2) * 3 * 1024);
  EXPECT_EQ(allreduce_double_tree(0, 8, 100, {.chunk_elements = 1024}).scratch_elements,
            2u * 3 * 64);
  EXPECT_EQ(allreduce_double_tree(0, 1, 100, {}).scratch_elements, 0u);
}

}  // namespace
}  // namespace kolo::test::allreduce_double_tree_test
