#include "runtime/negotiation/control_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace kolo::control_tree_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A communicator of all ranks as `rank` sees it.
Communicator world_of(int rank, const std::vector<int>& hosts) {
  std::vector<RankInfo> infos(hosts.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) infos[i].host_id = std::to_string(hosts[i]);
  return Communicator(0, World(rank, std::move(infos)));
}

std::vector<int> hosts_in_order(int ranks, int each) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / each);
  return hosts;
}

std::vector<int> hosts_in_turn(int ranks, int hosts) {
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank % hosts);
  return all;
}

struct Job {
  std::vector<int> hosts;
  int degree;
};

class Trees : public testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, Trees,
                         testing::Values(Job{hosts_in_order(2, 2), 1}, Job{hosts_in_order(9, 9), 1},
                                         Job{hosts_in_order(9, 2), 1}, Job{hosts_in_order(9, 2), 2},
                                         Job{hosts_in_order(64, 64), 3},
                                         Job{hosts_in_order(64, 8), 3},
                                         Job{hosts_in_turn(64, 8), 3}, Job{hosts_in_turn(50, 7), 4},
                                         Job{hosts_in_turn(30, 30), 2},
                                         Job{hosts_in_order(200, 8), 16}));

TEST_P(Trees, AreTheSameForAllRanks) {
  const auto& [hosts, degree] = GetParam();
  const auto ranks = static_cast<int>(hosts.size());
  std::vector<ControlTree> trees;
  for (int rank = 0; rank < ranks; ++rank) trees.emplace_back(world_of(rank, hosts), degree);
  int below_others = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const ControlTree& tree = trees[static_cast<std::size_t>(rank)];
    EXPECT_LE(tree.children().size(), static_cast<std::size_t>(degree));
    EXPECT_EQ(tree.is_between(), rank > 0 && !tree.children().empty());
    EXPECT_EQ(tree.place_of(rank), 0);
    int place = 1;
    for (const int child : tree.children()) {
      ++below_others;
      const ControlTree& other = trees[static_cast<std::size_t>(child)];
      EXPECT_EQ(other.parent(), rank);
      EXPECT_EQ(tree.below(child), (Places{place, other.size()}));
      for (int i = 0; i < other.size(); ++i) {
        EXPECT_EQ(tree.rank_at(place + i), other.rank_at(i));
        EXPECT_EQ(tree.place_of(other.rank_at(i)), place + i);
      }
      place += other.size();
    }
    EXPECT_EQ(tree.size(), place);
    if (tree.parent() >= 0) {
      EXPECT_EQ(tree.below(tree.parent()), std::nullopt);
      EXPECT_EQ(tree.place_of(tree.parent()), std::nullopt);
    }
  }
  EXPECT_EQ(below_others, ranks - 1);
  EXPECT_EQ(trees.front().parent(), -1);
  EXPECT_EQ(trees.front().size(), ranks);
}

TEST_P(Trees, HaveTheRanksOfAHostBelowOneOfThem) {
  const auto& [hosts, degree] = GetParam();
  std::vector<int> entrances(hosts.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const int parent = ControlTree(world_of(static_cast<int>(rank), hosts), degree).parent();
    if (parent < 0 || hosts[static_cast<std::size_t>(parent)] != hosts[rank])
      ++entrances[static_cast<std::size_t>(hosts[rank])];
  }
  EXPECT_LE(*std::max_element(entrances.begin(), entrances.end()), 1);
}

TEST(ControlTree, IsFlatIfRankZeroCanHaveAllAsNeighbours) {
  const std::vector<int> hosts = hosts_in_turn(5, 2);
  const ControlTree root(world_of(0, hosts), 4);
  EXPECT_THAT(root.children(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(root.below(3), Places{3});
  EXPECT_EQ(root.below(5), std::nullopt);
  const ControlTree other(world_of(3, hosts), 4);
  EXPECT_EQ(other.parent(), 0);
  EXPECT_THAT(other.children(), IsEmpty());
  EXPECT_FALSE(other.is_between());
  EXPECT_EQ(other.below(4), std::nullopt);
}

TEST(ControlTree, HasNoPlaceForARankOfAnotherCommunicator) {
  const Communicator world = world_of(0, hosts_in_order(9, 3));
  const ControlTree tree(Communicator(1, world, {1, 2, 3, 4}), 1);
  EXPECT_EQ(tree.parent(), -1);
  EXPECT_THAT(tree.children(), IsEmpty());
  EXPECT_FALSE(tree.is_between());
}

TEST(ControlTree, BeginsWithTheFirstRankOfASetWhoseHostHasLowerRanks) {
  // Rank 1 of host 1 is the set's first rank; host 0 has rank 0, which is not in the set.
  const std::vector<int> hosts = hosts_in_turn(8, 2);
  const ControlTree first(Communicator(1, world_of(1, hosts), {1, 2, 3, 4}), 1);
  EXPECT_EQ(first.parent(), -1);
  EXPECT_THAT(first.children(), ElementsAre(2)) << "rank 3 of the world, on the same host";
}

TEST(ControlTree, IsLowWhereRanksAreMany) {
  const std::vector<int> hosts = hosts_in_order(8192, 8);
  std::vector<RankInfo> infos(hosts.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) infos[i].host_id = std::to_string(hosts[i]);
  int height = 0;
  for (int rank = 8191; rank > 0; ++height)
    rank = ControlTree(Communicator(0, World(rank, infos)), 16).parent();
  EXPECT_LE(height, 4);
}

}  // namespace
}  // namespace kolo::control_tree_test
