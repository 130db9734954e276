// The numbers of a world, from descriptions of its ranks.
#include "runtime/topology/world.h"

#include "runtime/topology/host.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace kolo::world_test {
namespace {

/// A world with one rank per letter; equal letters are one host.
World world_of(int rank, const std::string& hosts) {
  std::vector<RankInfo> ranks;
  for (const char host : hosts) ranks.push_back({std::string(1, host), "", 1, "", {}});
  return World(rank, std::move(ranks));
}

std::vector<int> numbers(const World& w) {
  return {w.local_rank(), w.local_size(), w.cross_rank(), w.cross_size()};
}

TEST(World, OfOne) {
  EXPECT_EQ(numbers(world_of(0, "a")), (std::vector{0, 1, 0, 1}));
  EXPECT_EQ(numbers(World()), (std::vector{0, 1, 0, 1}));
}

TEST(World, RanksByBlocks) {
  EXPECT_EQ(numbers(world_of(0, "aabb")), (std::vector{0, 2, 0, 2}));
  EXPECT_EQ(numbers(world_of(1, "aabb")), (std::vector{1, 2, 0, 2}));
  EXPECT_EQ(numbers(world_of(2, "aabb")), (std::vector{0, 2, 1, 2}));
  EXPECT_EQ(numbers(world_of(3, "aabb")), (std::vector{1, 2, 1, 2}));
}

TEST(World, HostsAreNumberedByTheirLowestRankNotByName) {
  EXPECT_EQ(numbers(world_of(0, "zaza")), (std::vector{0, 2, 0, 2}));
  EXPECT_EQ(numbers(world_of(1, "zaza")), (std::vector{0, 2, 1, 2}));
  EXPECT_EQ(numbers(world_of(3, "zaza")), (std::vector{1, 2, 1, 2}));
}

TEST(World, UnevenHostsAndScatteredRanks) {
  // c: 0, 3, 5. a: 1. b: 2, 4.
  const std::string hosts = "cabcbc";
  EXPECT_EQ(numbers(world_of(1, hosts)), (std::vector{0, 1, 1, 3}));
  EXPECT_EQ(numbers(world_of(2, hosts)), (std::vector{0, 2, 2, 3}));
  // Only c and b have a second rank, only c a third.
  EXPECT_EQ(numbers(world_of(3, hosts)), (std::vector{1, 3, 0, 2}));
  EXPECT_EQ(numbers(world_of(4, hosts)), (std::vector{1, 2, 1, 2}));
  EXPECT_EQ(numbers(world_of(5, hosts)), (std::vector{2, 3, 0, 1}));
  EXPECT_TRUE(world_of(0, hosts).same_host(0, 5));
  EXPECT_FALSE(world_of(0, hosts).same_host(0, 1));
}

bool enough_cores(std::vector<std::vector<int>> cores) {
  std::vector<RankInfo> ranks;
  for (auto& of_rank : cores) ranks.push_back({"host", "", 1, "namespace", std::move(of_rank)});
  return World(0, std::move(ranks)).has_core_for_each_rank();
}

TEST(World, ACoreForEachRank) {
  EXPECT_TRUE(enough_cores({{0}}));
  EXPECT_TRUE(enough_cores({{0, 1}, {0, 1}}));
  EXPECT_TRUE(enough_cores({{0}, {1}}));             // bound by the launcher
  EXPECT_FALSE(enough_cores({{0}, {0}, {1, 2}}));    // three cores, yet two ranks share one
  EXPECT_TRUE(enough_cores({{0, 1}, {0, 2}, {0}}));  // the first two must move out of the way
  EXPECT_FALSE(enough_cores({{0, 1}, {0, 1}, {0, 1}}));
  EXPECT_FALSE(enough_cores({{}}));
}

TEST(World, ACoreForEachRankWithinTheirControlGroups) {
  const auto enough = [](const std::vector<std::pair<std::string, int>>& limits) {
    std::vector<RankInfo> ranks;
    for (const auto& [group, cores] : limits)
      ranks.push_back({"host", "", 1, "namespace", {0, 1, 2, 3}, 0, group, cores});
    return World(0, std::move(ranks)).has_core_for_each_rank();
  };
  EXPECT_TRUE(enough({{"a", 2}, {"a", 2}}));
  EXPECT_FALSE(enough({{"a", 2}, {"a", 2}, {"a", 2}}));
  EXPECT_TRUE(enough(
      {{"a", 1}, {"b", 1}, {"", 0}, {"", 0}}));  // two ranks in a container each, two without
  EXPECT_FALSE(enough({{"", 0}, {"a", 0}}));     // less than a whole one
}

TEST(World, CoresOfSeveralRanks) {
  const auto rank = [](std::vector<int> cores, const char* group = "", int limit = 0) {
    return RankInfo{"host", "", 1, "namespace", std::move(cores), 0, group, limit};
  };
  const World free(0, {rank({0, 1}), rank({1, 2}), rank({1}), rank({})});
  EXPECT_EQ(free.cores_of({0, 1, 2, 3}), 3);
  EXPECT_EQ(free.cores_of({0, 2}), 2);
  EXPECT_EQ(free.cores_of({3}), 1) << "it runs somewhere";
  const World limited(0, {rank({0, 1, 2, 3}, "a", 1), rank({0, 1, 2, 3}, "a", 1),
                          rank({0, 1, 2, 3}, "b", 2), rank({0, 1, 2, 3})});
  EXPECT_EQ(limited.cores_of({0, 1}), 1);
  EXPECT_EQ(limited.cores_of({0, 1, 2}), 3);
  EXPECT_EQ(limited.cores_of({0, 3}), 4) << "one of them has no limit";
}

TEST(World, RanksThatPoseAsOtherHostsShareTheCoresOfTheirMachine) {
  const auto rank = [](const char* host, const char* machine) {
    return RankInfo{host, "", 1, machine, {0, 1}};
  };
  EXPECT_FALSE(World(0, {rank("a", "m"), rank("a", "m"), rank("b", "m")}).has_core_for_each_rank());
  EXPECT_TRUE(World(0, {rank("a", "m"), rank("a", "m"), rank("b", "n")}).has_core_for_each_rank());
}

TEST(World, AllSayTheSameOfTheCoresOfSeveralRanks) {
  const auto rank = [](const char* host, const char* machine) {
    return RankInfo{host, "", 1, machine, {0, 1}};
  };
  // The second rank shares a host with the first, and a machine with the third and the fourth.
  const std::vector<RankInfo> ranks = {rank("a", "m"), rank("a", "n"), rank("b", "n"),
                                       rank("b", "n")};
  for (int asks = 0; asks < static_cast<int>(ranks.size()); ++asks) {
    const World world(asks, ranks);
    EXPECT_FALSE(world.has_core_for_each_rank({0, 1})) << asks;
    EXPECT_TRUE(world.has_core_for_each_rank({0})) << asks;
  }
}

TEST(RankInfo, ComesBackAsItWas) {
  const RankInfo info = {"host", "", 4711, "boot/1", {3, 1, 4}, 2, "7:9", 5};
  RankInfo back;
  ASSERT_TRUE(parse_rank_info(info.serialize(), back));
  EXPECT_EQ(back.host_id, "host");
  EXPECT_EQ(back.hostname, "");
  EXPECT_EQ(back.pid, 4711);
  EXPECT_EQ(back.pid_namespace, "boot/1");
  EXPECT_EQ(back.cores, info.cores);
  EXPECT_EQ(back.numa_node, 2);
  EXPECT_EQ(back.cpu_group, "7:9");
  EXPECT_EQ(back.cpu_cores, 5);
}

// Every rank gets it from every other.
TEST(RankInfo, ManyCoresTakeFewBytes) {
  for (const int step : {1, 2}) {
    RankInfo info;
    for (int core = 0; core < 192; core += step) info.cores.push_back(core);
    EXPECT_LT(info.serialize().size(), RankInfo().serialize().size() + 20);
    info.cores.insert(info.cores.end(), {500, 501, 510, 7});
    RankInfo back;
    ASSERT_TRUE(parse_rank_info(info.serialize(), back));
    EXPECT_EQ(back.cores, info.cores);
  }
}

TEST(RankInfo, RefusesOtherBytesAndLeavesTheTargetAlone) {
  const std::string good = RankInfo{"host", "name", 4711, "boot/1", {3}}.serialize();
  RankInfo info;
  info.hostname = "untouched";
  EXPECT_FALSE(parse_rank_info("", info));
  EXPECT_FALSE(parse_rank_info(good + "x", info));
  for (std::size_t length = 1; length + 9 < good.size(); ++length) {
    EXPECT_FALSE(parse_rank_info(good.substr(0, length), info)) << length;
  }
  std::string bad_pid = good;
  bad_pid.replace(bad_pid.find("4711"), 4, "47x1");
  EXPECT_FALSE(parse_rank_info(bad_pid, info));
  EXPECT_EQ(info.hostname, "untouched");
}

TEST(RankInfo, DescribesThisProcess) {
  const RankInfo info = describe_this_process("");
  EXPECT_EQ(info.pid, ::getpid());
  EXPECT_FALSE(info.hostname.empty());
  EXPECT_EQ(info.host_id, describe_this_process("").host_id);
  EXPECT_GT(info.host_id.size(), 10U);
  EXPECT_EQ(info.cores, usable_cores());
  EXPECT_EQ(describe_this_process("left").host_id, "left");
  EXPECT_EQ(describe_this_process("left").pid_namespace, info.pid_namespace);
}

TEST(UsableCores, RespectsTheBinding) {
  const std::vector<int> all = usable_cores();
  ASSERT_FALSE(all.empty());
  EXPECT_LE(all.size(), static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(all.back()), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), std::vector{all.back()});
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(usable_cores(), all);
}

}  // namespace
}  // namespace kolo::world_test
