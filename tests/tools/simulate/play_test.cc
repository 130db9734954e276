// What the simulator says of machines on which the time can be worked out by hand.
#include "tools/simulate/play.h"

#include "runtime/collectives/allreduce_ring.h"
#include "tools/simulate/collective.h"

#include <gtest/gtest.h>

#include <limits>

namespace kolo::simulate {
namespace {

using ::testing::Test;

constexpr double kNoTime = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kElements = 1'000'000;
constexpr double kBytesUs = 4.0 * kElements / 1e3;  ///< kElements floats at 1 GB/s

/// Messages between hosts alone take time: 10 us, and 1 ns a byte.
Machine plain(int hosts, int ranks_per_host = 1) {
  return {.hosts = hosts,
          .ranks_per_host = ranks_per_host,
          .across = {.latency_us = 10, .gigabytes_per_second = 1},
          .inside = {.gigabytes_per_second = kNoTime},
          .core_gigabytes_per_second = kNoTime,
          .memory_gigabytes_per_second = kNoTime};
}

/// Each rank of the first half sends to one of the second.
Schedule pairs(int rank, int size) {
  ScheduleBuilder builder("pairs", rank, size, kElements);
  const int half = size / 2;
  if (rank < half) {
    builder.send(rank + half, 0, {Space::kInput, -1, 0, kElements}, {});
  } else {
    builder.receive(rank - half, 0, {Space::kOutput, -1, 0, kElements}, {});
  }
  return std::move(builder).finish();
}

double time_of_pairs(const Machine& machine) {
  const auto played = play(machine, [&](int rank) { return pairs(rank, machine.ranks()); }, {});
  EXPECT_TRUE(played.ok());
  return played->us;
}

TEST(Play, MessageTakesItsLatencyAndItsBytes) {
  EXPECT_DOUBLE_EQ(time_of_pairs(plain(2)), 10 + kBytesUs);
}

TEST(Play, OverheadIsPaidAtBothEnds) {
  Machine machine = plain(2);
  machine.across.overhead_us = 3;
  EXPECT_DOUBLE_EQ(time_of_pairs(machine), 3 + 10 + kBytesUs + 3);
}

TEST(Play, RanksOfAHostShareItsLink) {
  EXPECT_DOUBLE_EQ(time_of_pairs(plain(2, 4)), 10 + 4 * kBytesUs);
}

TEST(Play, BurstPassesAtOnceAndOnlyAfterARest) {
  Machine machine = plain(2);
  machine.across.burst_bytes = 4 * kElements;
  EXPECT_DOUBLE_EQ(time_of_pairs(machine), 10);
  machine.ranks_per_host = 4;
  EXPECT_DOUBLE_EQ(time_of_pairs(machine), 10 + 3 * kBytesUs);
}

TEST(Play, HostsOfASwitchShareItsLinksToOtherSwitches) {
  Machine machine = plain(8);
  machine.oversubscription = 4;
  EXPECT_DOUBLE_EQ(time_of_pairs(machine), 10 + kBytesUs) << "one switch joins all";
  machine.hosts_per_switch = 4;
  EXPECT_DOUBLE_EQ(time_of_pairs(machine), 10 + 4 * kBytesUs);
  machine.oversubscription = 1;
  EXPECT_DOUBLE_EQ(time_of_pairs(machine), 10 + kBytesUs);
  machine.hosts_per_switch = 5;  // one of the four messages stays below its switch
  machine.oversubscription = 2.5;
  EXPECT_DOUBLE_EQ(time_of_pairs(machine), 10 + 1.5 * kBytesUs);
}

TEST(Play, RanksOfAHostDoNotShareTheirLinksInsideIt) {
  Machine machine = plain(1, 4);
  machine.inside = {.latency_us = 2, .gigabytes_per_second = 1};
  EXPECT_DOUBLE_EQ(time_of_pairs(machine), 2 + kBytesUs);
}

TEST(Play, SumsTakeTheCoreAndShareTheMemory) {
  Machine machine = plain(1, 4);
  const auto sum = [](int rank) {
    ScheduleBuilder builder("sum", rank, 4, kElements);
    const Operand input{Space::kInput, -1, 0, kElements}, output{Space::kOutput, -1, 0, kElements};
    builder.reduce({input, output}, {output}, Scaling::kNone, {});
    return std::move(builder).finish();
  };
  machine.core_gigabytes_per_second = 1;
  EXPECT_DOUBLE_EQ(play(machine, sum, {})->us, 3 * kBytesUs);
  machine.memory_gigabytes_per_second = 2;  // for four cores
  EXPECT_DOUBLE_EQ(play(machine, sum, {})->us, 4 * 3 * kBytesUs / 2);
}

TEST(Play, RingTakesItsClosedForm) {
  for (const int ranks : {2, 3, 4, 8, 13}) {
    const Machine machine = plain(ranks);
    const std::uint64_t count = 6400 * static_cast<std::uint64_t>(ranks);
    const auto ring = [&](int rank) { return allreduce_ring(rank, ranks, count, {}); };
    const double round = 10 + 6400 * 4 / 1e3;
    EXPECT_NEAR(play(machine, ring, {})->us, 2 * (ranks - 1) * round, 1e-6) << ranks << " ranks";
  }
}

TEST(Play, SlowRankDelaysAll) {
  Machine machine = plain(8);
  machine.core_gigabytes_per_second = 10;
  const Call call{.bytes = 8 << 20, .algorithm = Algorithm::kRing};
  const double alike = time_of(machine, call)->us;
  machine.slow_rank = 5;
  EXPECT_DOUBLE_EQ(time_of(machine, call)->us, alike);
  machine.slow_factor = 20;
  EXPECT_GT(time_of(machine, call)->us, 1.5 * alike);
}

TEST(Play, JitterIsTheSameForOneSeed) {
  Machine machine = plain(8);
  const Call call{.bytes = 1 << 20, .algorithm = Algorithm::kDoubleTree};
  const double alike = time_of(machine, call)->us;
  machine.jitter = 0.5;
  const double first = time_of(machine, call)->us;
  EXPECT_EQ(time_of(machine, call)->us, first);
  EXPECT_GT(first, alike);
  machine.seed = 2;
  EXPECT_NE(time_of(machine, call)->us, first);
}

std::string error_of(const ScheduleOf& schedules) {
  const auto played = play(plain(2), schedules, {});
  return played.ok() ? "none" : played.error().message;
}

TEST(Play, DeadlockIsAnError) {
  const auto each_waits_first = [](int rank) {
    ScheduleBuilder builder("stuck", rank, 2, 4);
    const Operand all{Space::kOutput, -1, 0, 4};
    const StepId received = builder.receive(1 - rank, 7, all, {});
    builder.send(1 - rank, 7, all, {received});
    return std::move(builder).finish();
  };
  EXPECT_EQ(error_of(each_waits_first),
            "the schedules wait for ever: rank 0 of 2, step 0 (receive from rank 1, tag 7)");
}

TEST(Play, MessageThatNobodyReceivesIsAnError) {
  const auto only_sends = [](int rank) {
    ScheduleBuilder builder("lost", rank, 2, 4);
    if (rank == 0) builder.send(1, 3, {Space::kInput, -1, 0, 4}, {});
    return std::move(builder).finish();
  };
  EXPECT_EQ(error_of(only_sends),
            "rank 0 sends 16 bytes with tag 3 to rank 1, which receives no such message");
}

}  // namespace
}  // namespace kolo::simulate
