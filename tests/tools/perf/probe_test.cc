// The ranks that kolo-perf's probe takes, by their hosts.
#include "tools/perf/probe.h"

#include "runtime/topology/world.h"

#include <gtest/gtest.h>

#include <string>

namespace kolo::perf::probe_test {
namespace {

/// `hosts[r]` is rank r's host; the other numbers follow kolo's own numbering.
std::optional<std::array<int, 2>> pair_on(const std::string& hosts) {
  std::vector<RankInfo> infos;
  for (const char host : hosts) infos.push_back({.host_id = {host}, .hostname = {host}});
  std::vector<Place> places;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    const World world(rank, infos);
    places.push_back({world.local_rank(), world.local_size(), world.cross_rank()});
  }
  return pair_of(places);
}

using Pair = std::array<int, 2>;

TEST(Probe, PairsTheFirstTwoRanksOfAHost) {
  EXPECT_EQ(pair_on("aa"), (Pair{0, 1}));
  EXPECT_EQ(pair_on("aabb"), (Pair{0, 1}));
  EXPECT_EQ(pair_on("abab"), (Pair{0, 2}));
  EXPECT_EQ(pair_on("baaab"), (Pair{0, 4}));
}

TEST(Probe, PassesOverHostsOfOneRank) {
  EXPECT_EQ(pair_on("abb"), (Pair{1, 2}));
  EXPECT_EQ(pair_on("abcbcc"), (Pair{1, 3}));
  EXPECT_EQ(pair_on("zyxyx"), (Pair{1, 3}));
}

TEST(Probe, PairsNobodyWhereEveryHostHasOneRank) {
  EXPECT_EQ(pair_on("a"), std::nullopt);
  EXPECT_EQ(pair_on("abc"), std::nullopt);
}

}  // namespace
}  // namespace kolo::perf::probe_test
