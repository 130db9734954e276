// Collectives on described machines: one host that stands for all others, choices, refusals.
#include "tools/simulate/collective.h"

#include "runtime/planning/route_table.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kolo::simulate {
namespace {

ScheduleOf allreduce_of(const Machine& machine, Algorithm algorithm, std::uint64_t count) {
  Policy policy = policy_of(machine);
  policy.forced = algorithm;
  const CallShape shape = even_call(OperationKind::kAllreduce, SubmissionMode::kNegotiated, false,
                                    count * 4, machine.ranks());
  return [request = route(shape, resources_of(machine), policy).request](int rank) mutable {
    request.rank = rank;
    return make_schedule(request);
  };
}

struct Case {
  int hosts;
  int ranks_per_host;
  Algorithm algorithm;
  Symmetry symmetry;
};

class OneHostForAll : public ::testing::TestWithParam<Case> {};

// Up to 64 hosts, is_alike() compares every rank's schedule.
TEST_P(OneHostForAll, TakesTheTimeOfAll) {
  const Case& of = GetParam();
  const Machine machine{.hosts = of.hosts, .ranks_per_host = of.ranks_per_host};
  const std::uint64_t count = 64 * 32 * static_cast<std::uint64_t>(machine.ranks());
  const ScheduleOf schedules = allreduce_of(machine, of.algorithm, count);
  ASSERT_TRUE(is_alike(machine, schedules, {}, of.symmetry));
  const auto one = play(machine, schedules, {}, of.symmetry);
  const auto all = play(machine, schedules, {}, Symmetry::kNone);
  ASSERT_TRUE(one.ok()) << one.error().message;
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_DOUBLE_EQ(one->us, all->us);
  EXPECT_EQ(one->steps * static_cast<std::uint64_t>(machine.hosts), all->steps);
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, OneHostForAll,
    ::testing::Values(Case{5, 1, Algorithm::kRing, Symmetry::kTurn},
                      Case{64, 1, Algorithm::kRing, Symmetry::kTurn},
                      Case{6, 4, Algorithm::kRing, Symmetry::kTurn},
                      Case{7, 1, Algorithm::kBidirectionalRing, Symmetry::kTurn},
                      Case{6, 3, Algorithm::kBidirectionalRing, Symmetry::kTurn},
                      Case{32, 1, Algorithm::kHalvingDoubling, Symmetry::kMirror},
                      Case{8, 4, Algorithm::kHalvingDoubling, Symmetry::kMirror},
                      Case{16, 2, Algorithm::kRecursiveDoubling, Symmetry::kMirror},
                      Case{8, 4, Algorithm::kHierarchical, Symmetry::kTurn},
                      Case{5, 3, Algorithm::kHierarchical, Symmetry::kTurn}));

TEST(IsAlike, SeesWhatDiffers) {
  const Machine machine{.hosts = 8};
  const auto alike = [&](const Machine& of, Algorithm algorithm, std::uint64_t count,
                         Symmetry how) {
    return is_alike(of, allreduce_of(of, algorithm, count), {}, how);
  };
  EXPECT_TRUE(alike(machine, Algorithm::kRing, 8 * 1000, Symmetry::kTurn));
  EXPECT_FALSE(alike(machine, Algorithm::kRing, 8 * 1000 + 1, Symmetry::kTurn));
  EXPECT_FALSE(alike(machine, Algorithm::kRing, 8 * 1000, Symmetry::kMirror));
  EXPECT_FALSE(alike(machine, Algorithm::kHalvingDoubling, 8 * 1024, Symmetry::kTurn));
  EXPECT_FALSE(alike(machine, Algorithm::kDoubleTree, 8 * 1024, Symmetry::kTurn));
  Machine uneven = machine;
  uneven.slow_rank = 0;
  EXPECT_FALSE(alike(uneven, Algorithm::kRing, 8 * 1000, Symmetry::kTurn));
}

TEST(TimeOf, EveryCollectiveEnds) {
  for (const auto& [hosts, ranks_per_host] : {std::pair(1, 4), {4, 1}, {3, 2}, {4, 4}}) {
    const Machine machine{.hosts = hosts, .ranks_per_host = ranks_per_host};
    for (const OperationKind kind :
         {OperationKind::kAllreduce, OperationKind::kBroadcast, OperationKind::kAllgather,
          OperationKind::kReduceScatter, OperationKind::kAlltoall})
      for (const std::uint64_t bytes : {4096, 1 << 20}) {
        const auto time = time_of(machine, {.kind = kind, .bytes = bytes});
        ASSERT_TRUE(time.ok()) << time.error().message;
        EXPECT_GT(time->us, 0) << time->schedule;
      }
    for (const Algorithm algorithm : algorithms_of(machine)) {
      const auto time = time_of(machine, {.bytes = 1 << 20, .algorithm = algorithm});
      ASSERT_TRUE(time.ok()) << time.error().message;
      EXPECT_EQ(time->schedule, "allreduce_" + std::string(to_string(algorithm)));
    }
  }
}

TEST(TimeOf, NoCollectiveIsFasterThanItsBytes) {
  const Machine machine{.hosts = 16};
  const std::uint64_t bytes = 64 << 20;
  const double least =
      2.0 * 15 / 16 * static_cast<double>(bytes) / machine.across.gigabytes_per_second / 1e3;
  for (const Algorithm algorithm : algorithms_of(machine))
    EXPECT_GT(time_of(machine, {.bytes = bytes, .algorithm = algorithm})->us, least)
        << to_string(algorithm);
}

TEST(TimeOf, ManyRanksTakeAFewMoreBytes) {
  const Machine machine{.hosts = 4096};
  const auto time =
      time_of(machine, {.bytes = 10'000'000, .algorithm = Algorithm::kRing}, 3'000'000);
  ASSERT_TRUE(time.ok()) << time.error().message;
  EXPECT_EQ(time->symmetry, Symmetry::kTurn);
  EXPECT_GE(time->bytes, 10'000'000u);
  EXPECT_LT(time->bytes, 11'200'000u);
  EXPECT_EQ(time->bytes % 4096, 0u);
}

TEST(TimeOf, RefusesWhatItCannotPlay) {
  const Machine machine{.hosts = 1000};
  const auto tree =
      time_of(machine, {.bytes = 64 << 20, .algorithm = Algorithm::kDoubleTree}, 1'000'000);
  ASSERT_FALSE(tree.ok());
  EXPECT_EQ(tree.error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(tree.error().message.starts_with(
      "allreduce_double_tree of 67108864 bytes on 1000 ranks has about "))
      << tree.error().message;
}

// One host stands for all, and no request lists the parts of all ranks.
TEST(TimeOf, AnAlltoallOfManyRanksEnds) {
  const Machine machine{.hosts = 32768};
  const auto time = time_of(machine, {.kind = OperationKind::kAlltoall, .bytes = 1 << 30});
  ASSERT_TRUE(time.ok()) << time.error().message;
  EXPECT_EQ(time->symmetry, Symmetry::kTurn);
  EXPECT_GT(time->us, 32768 * machine.across.overhead_us);
}

TEST(ChoiceOf, IsTheLeastPrice) {
  for (const auto& [hosts, ranks_per_host] : {std::pair(4, 1), {16, 1}, {8, 8}}) {
    const Machine machine{.hosts = hosts, .ranks_per_host = ranks_per_host};
    for (const std::uint64_t bytes : {4096, 1 << 20, 64 << 20}) {
      const Call call{.bytes = bytes};
      const double chosen = price_of(machine, call, choice_of(machine, call));
      for (const Algorithm algorithm : algorithms_of(machine))
        EXPECT_LE(chosen, price_of(machine, call, algorithm)) << to_string(algorithm);
    }
  }
}

// What the ranks of a node read in other nodes' memory takes its share of a link.
TEST(NumaNodes, SumsGoByThemWhereTheyBound) {
  Machine machine{.hosts = 1, .ranks_per_host = 32, .memory_gigabytes_per_second = 400};
  const Call call{.bytes = 4 << 20, .algorithm = Algorithm::kMapped};
  const auto time = [&](int nodes, bool flat) {
    machine.numa_nodes = nodes;
    machine.is_flat = flat;
    return time_of(machine, call, 1 << 24);
  };
  const auto one = time(1, false), flat = time(4, true), by_nodes = time(4, false);
  ASSERT_TRUE(one.ok() && flat.ok() && by_nodes.ok());
  EXPECT_EQ(one->schedule, "allreduce_mapped");
  EXPECT_EQ(flat->schedule, "allreduce_mapped");
  EXPECT_EQ(by_nodes->schedule, "allreduce_numa");
  EXPECT_GT(flat->us, 1.5 * one->us);
  EXPECT_LT(by_nodes->us, 0.8 * flat->us);
}

}  // namespace
}  // namespace kolo::simulate
