// The chooser: properties of the schedule builder, the split into parts, and the cache of
// schedules.
#include "runtime/planning/chooser.h"

#include "runtime/collectives/split.h"
#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace kolo::chooser_test {
namespace {

TEST(ScheduleBuilder, MergesDependenciesAndIgnoresNoStep) {
  ScheduleBuilder builder("test", 0, 2, 4);
  const StepId first = builder.receive(1, 0, {Space::kOutput, -1, 0, 4}, {});
  const StepId second =
      builder.send(1, 1, {Space::kOutput, -1, 0, 4}, {first, ScheduleBuilder::kNoStep, first});
  const std::vector<StepId> both = {first, second, ScheduleBuilder::kNoStep};
  const StepId last = builder.join(both);
  builder.need_scratch(7);
  builder.need_scratch(3);
  const Schedule schedule = std::move(builder).finish();

  EXPECT_EQ(schedule.scratch_elements, 7u);
  ASSERT_EQ(schedule.depends_on(schedule.steps[second]).size(), 1u);
  EXPECT_EQ(schedule.depends_on(schedule.steps[second]).front(), first);
  EXPECT_EQ(schedule.depends_on(schedule.steps[last]).size(), 2u);
  EXPECT_TRUE(schedule.sources(schedule.steps[last]).empty());
}

TEST(Split, CoversEverythingInNearEqualParts) {
  for (const std::uint64_t granule : {1u, 64u})
    for (const std::uint64_t length : {0u, 1u, 63u, 64u, 65u, 1000u})
      for (const std::uint64_t parts : {1u, 2u, 7u}) {
        std::uint64_t next = 10;
        for (std::uint64_t i = 0; i < parts; ++i) {
          const Interval part = split({10, length}, parts, i, granule);
          EXPECT_EQ(part.begin, next);
          EXPECT_LE(part.length, (length / granule / parts + 1) * granule);
          if (i > 0 && part.length > 0) {
            EXPECT_EQ((part.begin - 10) % granule, 0u);
          }
          next += part.length;
        }
        EXPECT_EQ(next, 10 + length);
      }
}

TEST(MakeSchedule, ChoosesByCollective) {
  EXPECT_EQ(make_schedule({.size = 2, .count = 8}).algorithm, "allreduce_ring");
  EXPECT_EQ(make_schedule({.kind = OperationKind::kBroadcast, .size = 2, .count = 8}).algorithm,
            "broadcast_binomial");
  const auto algorithm = [](ScheduleRequest request) { return make_schedule(request).algorithm; };
  const std::vector<std::uint64_t> counts = {3, 5};
  EXPECT_EQ(algorithm({.kind = OperationKind::kAllgather, .size = 2, .counts = counts}),
            "allgather_ring");
  EXPECT_EQ(algorithm({.kind = OperationKind::kAllgather,
                       .size = 4,
                       .algorithm = Algorithm::kRecursiveDoubling,
                       .counts = {9, 0, 1, 2}}),
            "allgather_recursive_doubling");
  EXPECT_EQ(algorithm({.kind = OperationKind::kAllgather,
                       .size = 5,
                       .algorithm = Algorithm::kRecursiveDoubling,
                       .counts = {9, 0, 1, 2, 3}}),
            "allgather_bruck");
  EXPECT_EQ(algorithm({.kind = OperationKind::kAllgather, .size = 4, .counts = {9, 0, 1, 2}}),
            "allgather_ring");
  EXPECT_EQ(algorithm({.kind = OperationKind::kAlltoall, .size = 2, .counts = {1, 2, 3, 4}}),
            "alltoall_pairwise");
  EXPECT_EQ(algorithm({.kind = OperationKind::kAlltoall, .size = 100, .counts = {2}}),
            "alltoall_bruck");
  EXPECT_EQ(algorithm({.kind = OperationKind::kAlltoall, .size = 100, .counts = {2000}}),
            "alltoall_pairwise");
  EXPECT_EQ(algorithm({.kind = OperationKind::kReduceScatter, .size = 2, .counts = counts}),
            "reduce_scatter_ring");
  EXPECT_EQ(algorithm({.kind = OperationKind::kReduceScatter,
                       .size = 4,
                       .algorithm = Algorithm::kRecursiveDoubling,
                       .counts = {9, 0, 1, 2}}),
            "reduce_scatter_halving");
  EXPECT_EQ(algorithm({.kind = OperationKind::kBroadcast, .size = 4, .count = 8}),
            "broadcast_binomial");
  EXPECT_EQ(algorithm({.kind = OperationKind::kBroadcast, .size = 4, .count = 1 << 20}),
            "broadcast_double_tree");
  EXPECT_EQ(algorithm({.kind = OperationKind::kGather, .size = 2, .counts = counts}),
            "gather_linear");
  EXPECT_EQ(algorithm({.kind = OperationKind::kScatter, .size = 2, .counts = counts}),
            "scatter_linear");
  for (const auto& [kind, name] : {std::pair(OperationKind::kGather, "gather_mapped"),
                                   std::pair(OperationKind::kScatter, "scatter_mapped")})
    EXPECT_EQ(algorithm({.kind = kind,
                         .size = 2,
                         .algorithm = Algorithm::kMapped,
                         .mapped_elements = 64,
                         .counts = counts}),
              name);
  EXPECT_EQ(algorithm({.kind = OperationKind::kBarrier, .size = 2}), "barrier_dissemination");
  EXPECT_EQ(algorithm({.kind = OperationKind::kSend, .size = 2, .peer = 1, .count = 8}),
            "point_to_point");
  EXPECT_EQ(algorithm({.size = 2, .count = 8, .algorithm = Algorithm::kRecursiveDoubling}),
            "allreduce_recursive_doubling");
  const HostLayout layout(std::vector<int>{0, 1});
  for (const Algorithm a : kAlgorithms)
    EXPECT_EQ(
        algorithm({.size = 2, .count = 8, .algorithm = a, .mapped_elements = 64, .layout = layout}),
        a == Algorithm::kMapped ? "allreduce_numa" : "allreduce_" + std::string(to_string(a)));
  const auto mapped = [&](OperationKind kind, const HostLayout& nodes) {
    return algorithm({.kind = kind,
                      .size = 2,
                      .count = 8,
                      .algorithm = Algorithm::kMapped,
                      .mapped_elements = 64,
                      .layout = nodes,
                      .counts = counts});
  };
  const HostLayout one(std::vector<int>{0, 0});
  for (const auto& [kind, name] : {std::pair(OperationKind::kAllreduce, "allreduce_"),
                                   std::pair(OperationKind::kBroadcast, "broadcast_"),
                                   std::pair(OperationKind::kAllgather, "allgather_"),
                                   std::pair(OperationKind::kReduceScatter, "reduce_scatter_")}) {
    EXPECT_EQ(mapped(kind, layout), std::string(name) + "numa");
    EXPECT_EQ(mapped(kind, one), std::string(name) + "mapped");
    EXPECT_EQ(mapped(kind, {}), std::string(name) + "mapped");
  }
}

TEST(MakeSchedule, AllreducesGoRoundTheHostsInTurn) {
  // Ranks alternate between two hosts; the second host numbers its NUMA nodes in reverse.
  const HostLayout layout(std::vector<int>{0, 1, 0, 1, 0, 1}, std::vector<int>{0, 1, 0, 1, 1, 0});
  EXPECT_EQ(std::vector<int>(layout.order().begin(), layout.order().end()),
            (std::vector<int>{0, 2, 4, 5, 1, 3}));
  for (const Algorithm algorithm : kAlgorithms) {
    const auto schedules = test::schedules_of(6, [&](int rank) {
      return make_schedule({.rank = rank,
                            .size = 6,
                            .count = 100,
                            .chunk_elements = 8,
                            .algorithm = algorithm,
                            .mapped_elements = 400,
                            .layout = layout});
    });
    SCOPED_TRACE(to_string(algorithm));
    test::prove(schedules, {});
    test::prove(schedules, {.input_is_output = true});
    if (algorithm != Algorithm::kRing) continue;
    for (const Step& step : schedules[2].steps) {
      if (step.kind == StepKind::kSend) {
        EXPECT_EQ(step.peer, 4);
      }
      if (step.kind == StepKind::kReceive) {
        EXPECT_EQ(step.peer, 0);
      }
    }
  }
}

TEST(MakeSchedule, WhatGoesRoundEntersEachHostOnce) {
  const HostLayout layout(std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1}, {});
  const std::vector<std::uint64_t> counts = {17, 9, 0, 30, 1, 8, 25, 10};
  for (const OperationKind collective :
       {OperationKind::kBroadcast, OperationKind::kAllgather, OperationKind::kReduceScatter})
    for (int root = 0; root < (collective == OperationKind::kBroadcast ? layout.size() : 1); ++root)
      for (const auto& [chunk, in_place] :
           std::vector<std::pair<std::uint64_t, bool>>{{8, false}, {8, true}, {4096, false}}) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(collective) << " of root " << root
                                          << ", chunks of " << chunk);
        const bool is_gathered_in_place = collective == OperationKind::kAllgather && in_place;
        const auto schedules = test::schedules_of(layout.size(), [&](int rank) {
          return make_schedule({.kind = collective,
                                .rank = rank,
                                .size = layout.size(),
                                .root = root,
                                .count = 100,
                                .chunk_elements = chunk,
                                .layout = layout,
                                .in_place = is_gathered_in_place,
                                .counts = counts});
        });
        test::prove(
            schedules,
            {.kind = collective, .root = root, .counts = counts, .input_is_output = in_place});
        if (chunk > 100) continue;            // few elements need fewer messages
        std::set<std::pair<int, int>> links;  // between hosts
        for (const Schedule& schedule : schedules)
          for (const Step& step : schedule.steps)
            if (step.kind == StepKind::kSend &&
                layout.host_of(schedule.rank) != layout.host_of(step.peer))
              links.emplace(schedule.rank, step.peer);
        // A broadcast's two trees have two edges each.
        EXPECT_EQ(links.size(), collective == OperationKind::kBroadcast ? 4u : 3u);
      }
}

TEST(MakeSchedule, PassesOnWhatTheRequestSays) {
  ScheduleRequest request{
      .kind = OperationKind::kAllgather, .size = 2, .chunk_elements = 2, .counts = {3, 5}};
  const Schedule gathered = make_schedule(request);
  EXPECT_EQ(gathered.input_elements, 3u);
  EXPECT_EQ(gathered.output_elements, 8u);
  EXPECT_EQ(gathered.steps.size(), 2u + 3 + 1);
  request.in_place = true;
  EXPECT_EQ(make_schedule(request).steps.size(), 2u + 3);

  request = {.kind = OperationKind::kSend, .size = 3, .root = 2, .peer = 1, .count = 8};
  EXPECT_TRUE(make_schedule(request).steps.empty());
  request.rank = 1;
  EXPECT_EQ(make_schedule(request).steps.front().peer, 2);
}

TEST(ScheduleCache, GivesTheSameScheduleForTheSameRequestOnly) {
  ScheduleCache cache;
  const ScheduleRequest request{.rank = 1, .size = 3, .count = 100};
  const auto first = cache.get(request);
  EXPECT_EQ(cache.get(request), first);

  std::vector<ScheduleRequest> others(12, request);
  others[0].kind = OperationKind::kBroadcast;
  others[1].rank = 2;
  others[2].size = 4;
  others[3].root = 1;
  others[4].count = 101;
  others[5].chunk_elements = 10;
  others[6].blocks_in_flight = 1;
  others[7].placement = Placement::kPacked;
  others[8].peer = 1;
  others[9].in_place = true;
  others[10].counts = {1, 2};
  others[11].layout = HostLayout(std::vector<int>{0, 0, 1});
  for (const ScheduleRequest& other : others) EXPECT_NE(cache.get(other), first);
  EXPECT_EQ(cache.size(), 13u);
}

TEST(ScheduleCache, DropsTheLeastRecentlyUsedAndKeepsWhatIsInUse) {
  ScheduleCache cache({.entries = 2, .steps = 1 << 20});
  const auto request = [](std::uint64_t count) {
    return ScheduleRequest{.size = 2, .count = count};
  };
  const auto first = cache.get(request(1));
  const auto second = cache.get(request(2));
  cache.get(request(1));
  cache.get(request(3));  // evicts the second
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.get(request(1)), first);
  EXPECT_NE(cache.get(request(2)), second);
  EXPECT_EQ(second->input_elements, 2u);
}

TEST(ScheduleCache, IsBoundedByStepsToo) {
  ScheduleCache cache({.entries = 512, .steps = 100});
  const ScheduleRequest large{.size = 2, .count = 1000, .chunk_elements = 10};
  EXPECT_GT(cache.get(large)->steps.size(), 100u);
  EXPECT_EQ(cache.size(), 1u);  // the requested schedule stays
  cache.get({.size = 2, .count = 10});
  EXPECT_EQ(cache.size(), 1u);
}

TEST(ScheduleCache, WeighsLongLists) {
  ScheduleCache cache({.entries = 512, .steps = 1000});
  ScheduleRequest request{.kind = OperationKind::kAlltoall, .size = 64};
  request.counts.assign(std::size_t{64} * 64, 0);
  EXPECT_TRUE(cache.get(request)->steps.empty());
  request.rank = 1;
  cache.get(request);
  EXPECT_EQ(cache.size(), 1u);
}

}  // namespace
}  // namespace kolo::chooser_test
