// One core for each rank, against a matching that goes over ranks and cores one by one.
#include "runtime/topology/core_matching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace kolo::core_matching_test {
namespace {

using Masks = std::vector<std::vector<int>>;

bool by_bits(const Masks& masks) {
  std::vector<const std::vector<int>*> cores;
  for (const auto& mask : masks) cores.push_back(&mask);
  return can_have_a_core_each(cores);
}

/// One augmenting path of Kuhn's bipartite matching.
bool location(int rank, const Masks& masks, std::map<int, int>& rank_on_core,
              std::set<int>& visited) {
  for (const int core : masks[static_cast<std::size_t>(rank)]) {
    if (!visited.insert(core).second) continue;
    const auto taken = rank_on_core.find(core);
    if (taken == rank_on_core.end() || location(taken->second, masks, rank_on_core, visited)) {
      rank_on_core[core] = rank;
      return true;
    }
  }
  return false;
}

bool one_by_one(const Masks& masks) {
  std::map<int, int> rank_on_core;
  for (int rank = 0; rank < static_cast<int>(masks.size()); ++rank) {
    std::set<int> visited;
    if (!location(rank, masks, rank_on_core, visited)) return false;
  }
  return true;
}

/// `ranks` random masks of `kinds` different sets with at most `most` cores, each in its own order.
Masks masks_by_chance(std::mt19937& chance, int ranks, int cores, int kinds, int most) {
  const auto up_to = [&](int last) { return std::uniform_int_distribution(0, last)(chance); };
  Masks kinds_of_masks;
  std::vector<int> all(static_cast<std::size_t>(cores));
  // Numbers that are neither dense nor small.
  for (int core = 0; core < cores; ++core) all[static_cast<std::size_t>(core)] = core * 1000 - 7;
  for (int kind = 0; kind < kinds; ++kind) {
    std::shuffle(all.begin(), all.end(), chance);
    kinds_of_masks.emplace_back(all.begin(), all.begin() + up_to(std::min(most, cores) - 1) + 1);
  }
  Masks masks;
  for (int rank = 0; rank < ranks; ++rank) {
    masks.push_back(kinds_of_masks[static_cast<std::size_t>(up_to(kinds - 1))]);
    std::shuffle(masks.back().begin(), masks.back().end(), chance);
  }
  return masks;
}

TEST(CoreMatching, AnswersAsOneByOne) {
  std::mt19937 chance(1);
  int yes = 0;
  constexpr int kTries = 4000;
  for (int i = 0; i < kTries; ++i) {
    const auto up_to = [&](int last) { return std::uniform_int_distribution(1, last)(chance); };
    const int cores = up_to(140);
    const int ranks = std::max(1, cores + 1 - up_to(8));
    const int kinds = up_to(ranks);
    const int most = up_to(cores);
    const Masks masks = masks_by_chance(chance, ranks, cores, kinds, most);
    const bool answer = one_by_one(masks);
    ASSERT_EQ(by_bits(masks), answer) << "case " << i;
    yes += answer ? 1 : 0;
  }
  // Neither answer is rare.
  EXPECT_GT(yes, kTries / 10);
  EXPECT_LT(yes, kTries * 9 / 10);
}

TEST(CoreMatching, NobodyAndNothing) {
  EXPECT_TRUE(by_bits({}));
  EXPECT_FALSE(by_bits({{}}));
  EXPECT_FALSE(by_bits({{0, 0}, {0}}));
}

// Masks as a large machine's ranks have them, and the worst case.
TEST(CoreMatching, LargeMachines) {
  constexpr int kMany = 1024;
  std::vector<int> all(kMany);
  std::iota(all.begin(), all.end(), 0);
  Masks masks(kMany, all);
  EXPECT_TRUE(by_bits(masks));
  masks.push_back(all);
  EXPECT_FALSE(by_bits(masks));
  masks.clear();
  // Each rank fits with those before it; the last rank makes all of them move.
  for (int rank = 0; rank < kMany; ++rank) masks.push_back({rank, (rank + 1) % kMany});
  EXPECT_TRUE(by_bits(masks));
  masks.back() = {0};
  EXPECT_TRUE(by_bits(masks));
  masks[1] = {0};
  EXPECT_FALSE(by_bits(masks));
}

}  // namespace
}  // namespace kolo::core_matching_test
