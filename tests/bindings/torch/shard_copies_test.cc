// Which rank keeps whose part, and from which copies a world goes on; without other ranks.
#include "bindings/torch/training/shard_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace kolo::test::shard_copies_test {
namespace {

/// All ways to put `ranks` ranks on hosts.
std::vector<std::vector<int>> placements(std::size_t ranks) {
  std::vector<std::vector<int>> all{{}};
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<std::vector<int>> next;
    for (const auto& hosts : all) {
      // A host has the number of its lowest rank.
      for (int host = 0; host <= static_cast<int>(r); ++host) {
        if (host < static_cast<int>(r) && hosts[static_cast<std::size_t>(host)] != host) continue;
        next.push_back(hosts);
        next.back().push_back(host);
      }
    }
    all = std::move(next);
  }
  return all;
}

TEST(KeepersOf, EachRankKeepsOnePartAndOnAnotherHostWhereThatIsPossible) {
  for (std::size_t ranks = 1; ranks <= 7; ++ranks) {
    for (const auto& hosts : placements(ranks)) {
      const std::vector<int> keepers = keepers_of(hosts);
      std::vector<int> sorted = keepers;
      std::sort(sorted.begin(), sorted.end());
      std::map<int, std::size_t> on;
      for (const int host : hosts) ++on[host];
      std::size_t largest = 0;
      for (const auto& [host, count] : on) largest = std::max(largest, count);
      for (std::size_t r = 0; r < ranks; ++r) {
        EXPECT_EQ(sorted[r], static_cast<int>(r)) << "a permutation";
        const auto keeper = static_cast<std::size_t>(keepers[r]);
        EXPECT_TRUE(keeper != r || ranks == 1);
        EXPECT_TRUE(hosts[keeper] != hosts[r] || 2 * largest > ranks);
      }
    }
  }
}

PartCopy copy(int holder, std::int64_t generation, std::int64_t progress, std::int64_t part) {
  return {.holder = holder,
          .version = {.generation = generation, .progress = progress, .parts = 3},
          .part = part,
          .bytes = 10 * part};
}

TEST(NewestWhole, IsTheLastOfWhichAllPartsExist) {
  // Rank 2 was lost. Ranks 0 and 1 have copies of all parts at step 8, of two at step 9.
  const auto backup = newest_whole({copy(0, 1, 9, 0), copy(0, 1, 8, 0), copy(0, 1, 8, 2),
                                    copy(1, 1, 9, 1), copy(1, 1, 8, 1), copy(1, 1, 8, 0)});
  ASSERT_TRUE(backup);
  EXPECT_EQ(backup->version.progress, 8);
  ASSERT_EQ(backup->parts.size(), 3U);
  const std::vector<int> holders{0, 1, 0};
  for (std::size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(backup->parts[part].holder, holders[part]);
    EXPECT_EQ(backup->parts[part].bytes, static_cast<std::int64_t>(10 * part));
  }
}

TEST(NewestWhole, ALaterWorldCountsMoreThanALaterStep) {
  std::vector<PartCopy> copies;
  for (int part = 0; part < 3; ++part) {
    copies.push_back(copy(0, 1, 9, part));
    copies.push_back(copy(0, 2, 7, part));
  }
  EXPECT_EQ(newest_whole(copies)->version.progress, 7);
}

TEST(NewestWhole, WithoutOneTheMissingPartsAreNamed) {
  const std::vector<PartCopy> copies{copy(0, 4, 50, 0), copy(0, 4, 40, 0)};
  EXPECT_FALSE(newest_whole(copies));
  EXPECT_EQ(
      parts_gone(copies),
      "of the optimizer's state at step 50 in world 4 the part of rank 1 and of rank 2 of 3 is "
      "gone, for that rank and the one that kept a copy were both lost");
  EXPECT_FALSE(newest_whole({}));
}

}  // namespace
}  // namespace kolo::test::shard_copies_test
