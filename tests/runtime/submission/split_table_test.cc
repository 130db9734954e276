// The table of all ranks' splits: what it holds of each kind, and what each rank finds in it.
#include "runtime/submission/split_table.h"

#include "runtime/submission/row_layout.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace kolo::split_table_test {
namespace {

using enum OperationKind;

Splits found(const SplitTable& table, OperationKind kind, int rank, int ranks) {
  const auto splits = splits_of(table, kind, rank, ranks);
  return {splits.begin(), splits.end()};
}

TEST(SplitTable, HoldsOneNumberWhereAllAreEqual) {
  for (const OperationKind kind : {kAllgather, kGather, kAlltoall}) {
    const SplitTable table = table_of(kind, {{3}, {3}, {3}}, 0);
    EXPECT_EQ(table, SplitTable{3});
    EXPECT_EQ(found(table, kind, 2, 3), Splits{3});
  }
  EXPECT_EQ(shortened({4, 4, 4}), Splits{4});
  EXPECT_EQ(shortened({4, 4, 5}), (Splits{4, 4, 5}));
  EXPECT_EQ(shortened({}), Splits{});
}

TEST(SplitTable, HoldsARowOfEachRankWhereTheyDiffer) {
  const SplitTable gathered = table_of(kAllgather, {{3}, {0}, {5}}, 0);
  EXPECT_EQ(gathered, (SplitTable{3, 0, 5}));
  EXPECT_EQ(found(gathered, kAllgather, 2, 3), Splits{5});
  const SplitTable dealt = table_of(kAlltoall, {{3}, {1, 2, 4}, {3}}, 0);
  EXPECT_EQ(dealt, (SplitTable{3, 3, 3, 1, 2, 4, 3, 3, 3}));
  EXPECT_EQ(found(dealt, kAlltoall, 1, 3), (Splits{1, 2, 4}));
  EXPECT_EQ(table_of(kAlltoall, {{1}, {2}}, 0), (SplitTable{1, 1, 2, 2}));
}

TEST(SplitTable, HoldsTheRootsOfAScatter) {
  for (const Splits& of_root : {Splits{1, 2, 4}, Splits{7}}) {
    const SplitTable table = table_of(kScatter, {{}, of_root, {}}, 1);
    EXPECT_EQ(table, of_root);
    EXPECT_EQ(found(table, kScatter, 0, 3), of_root);
  }
}

// A layout that lists all parts would take 8 GiB here.
TEST(SplitTable, AnEvenAlltoallOfManyRanksIsLaidOutWithoutAListOfAllParts) {
  constexpr int kRanks = 32768;
  const Communicator communicator(0, World(5, std::vector<RankInfo>(kRanks)));
  const Signature signature{.kind = kAlltoall, .shape = {2}};
  const RowLayout layout = layout_of(signature, {3}, communicator);
  EXPECT_EQ(layout.counts, std::vector<std::uint64_t>{6});
  EXPECT_EQ(layout.input_elements, 6U * kRanks);
  EXPECT_EQ(layout.output_elements, 6U * kRanks);
  EXPECT_EQ(layout.output_shape, (Shape{3 * kRanks, 2}));
  EXPECT_EQ(layout.received, Splits(kRanks, 3));
}

TEST(SplitTable, EqualPartsAreLaidOutForEachRank) {
  const Communicator communicator(0, World(1, std::vector<RankInfo>(3)));
  for (const OperationKind kind : {kAllgather, kGather, kScatter}) {
    const Signature signature{.kind = kind, .root = 1, .shape = {2}};
    const RowLayout layout = layout_of(signature, {3}, communicator);
    EXPECT_EQ(layout.counts, (std::vector<std::uint64_t>{6, 6, 6}));
    EXPECT_EQ(layout.own_offset, 6U);
    EXPECT_EQ(layout.input_elements, kind == kScatter ? 18U : 6U);
    EXPECT_EQ(layout.output_elements, kind == kScatter ? 6U : 18U);
  }
}

}  // namespace
}  // namespace kolo::split_table_test
