// Proves the two-level allreduce's schedules with the checker for many layouts of hosts, and
// compares the network traffic with the file head of the algorithm.
#include "runtime/collectives/allreduce_hierarchical.h"

#include "tests/support/host_cases.h"
#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

namespace kolo::test::allreduce_hierarchical_test {
namespace {

std::vector<Schedule> schedules_on(const HostLayout& layout, std::uint64_t count,
                                   const HierarchicalOptions& options) {
  return schedules_of(layout.size(), [&](int rank) {
    return allreduce_hierarchical(rank, layout, count, options);
  });
}

void prove_on(const Hosts& hosts, std::uint64_t count, const HierarchicalOptions& options) {
  SCOPED_TRACE(::testing::Message() << "hosts " << ::testing::PrintToString(hosts) << ", " << count
                                    << " elements, chunks of " << options.chunk_elements << ", "
                                    << options.blocks_in_flight << " blocks, windows of "
                                    << options.mapped_elements << (options.staged ? ", staged" : "")
                                    << ", owners " << ::testing::PrintToString(options.owners));
  const HostLayout layout(hosts);
  const std::vector<Schedule> schedules = schedules_on(layout, count, options);
  prove(schedules, {});
  prove(schedules, {.input_is_output = true});
  if (options.mapped_elements > 0) {
    const auto ranks = hosts.size();
    std::vector<bool> all(ranks, true), thirds(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) thirds[rank] = rank % 3 == 0;
    prove(schedules, {.direct_inputs = all, .direct_outputs = all});
    prove(schedules, {.input_is_output = true, .direct_inputs = all, .direct_outputs = all});
    prove(schedules, {.direct_inputs = thirds, .direct_outputs = all});
    prove(schedules, {.input_is_output = true, .direct_inputs = thirds, .direct_outputs = thirds});
    for (const Schedule& schedule : schedules) {
      EXPECT_LE(schedule.scratch_elements, options.mapped_elements);
      if (layout.members(layout.host_of(schedule.rank)).size() > 1 && count > 0) {
        EXPECT_TRUE(schedule.scratch_is_mapped);
      }
    }
  }
  std::uint64_t across = 0;
  for (const std::uint64_t elements : sent_across(schedules, layout)) across += elements;
  EXPECT_EQ(across, 2 * count * static_cast<std::uint64_t>(layout.hosts() - 1));
}

void prove_counts(const Hosts& hosts) {
  const HostLayout layout(hosts);
  const auto ranks = static_cast<std::uint64_t>(layout.size());
  const auto block = 2 * static_cast<std::uint64_t>(layout.hosts() * layout.most_on_a_host());
  // Two pipeline slots and more than three blocks, so slots are reused. The last block is not full.
  for (const std::uint64_t count : std::set<std::uint64_t>{0, 1, ranks, 3 * block + 1})
    for (const std::uint64_t window : {0, 1200})
      for (const bool staged : {false, true})
        if (!staged || count > block)
          prove_on(hosts, count,
                   {.chunk_elements = 2,
                    .blocks_in_flight = 2,
                    .mapped_elements = window,
                    .staged = staged});
}

class HostCounts : public ::testing::TestWithParam<int> {};

TEST_P(HostCounts, EqualHosts) {
  for (const int locals : {1, 2, 3, 4})
    prove_counts(blocks_of(std::vector<int>(static_cast<std::size_t>(GetParam()), locals)));
}

TEST_P(HostCounts, UnequalHosts) {
  std::vector<int> rising, last_alone, first_alone;
  for (int h = 0; h < GetParam(); ++h) {
    rising.push_back(1 + h % 4);
    last_alone.push_back(h == GetParam() - 1 ? 1 : 3);
    first_alone.push_back(h == 0 ? 1 : 2);
  }
  for (const auto& locals : {rising, last_alone, first_alone}) prove_counts(blocks_of(locals));
}

TEST_P(HostCounts, RanksOfAHostAreNoNeighbours) {
  std::vector<int> rising;
  for (int h = 0; h < GetParam(); ++h) rising.push_back(1 + (h * 3 + 1) % 4);
  prove_counts(dealt(rising));
  prove_counts(dealt(std::vector<int>(static_cast<std::size_t>(GetParam()), 3)));
}

INSTANTIATE_TEST_SUITE_P(Hosts, HostCounts, ::testing::Range(1, 9));

TEST(AllreduceHierarchical, IsRightForSixtyFourRanks) {
  if (kLargestWorld < 64)
    return;  // the proof takes too long; smaller worlds have been proved above
  for (const std::uint64_t window : {0, 4096})
    prove_on(blocks_of({16, 16, 16, 16}), 5000,
             {.chunk_elements = 64, .blocks_in_flight = 2, .mapped_elements = window});
}

TEST(AllreduceHierarchical, OwnersAloneSumAndDriveTheNetwork) {
  // Ranks that share a device have one owner: {0, 1} and {2}; {3, 4}; {5}.
  const Hosts hosts = {0, 0, 0, 1, 1, 2};
  for (const std::uint64_t window : {0, 1200})
    for (const bool staged : {false, true}) {
      const HierarchicalOptions options{.chunk_elements = 2,
                                        .blocks_in_flight = 2,
                                        .mapped_elements = window,
                                        .staged = staged,
                                        .owners = {0, 2, 3, 5}};
      prove_on(hosts, 100, options);
      for (const Schedule& schedule : schedules_on(HostLayout(hosts), 100, options))
        for (const Step& step : schedule.steps)
          if (schedule.rank == 1 || schedule.rank == 4) {
            EXPECT_NE(step.kind, StepKind::kReduce);
          }
    }
}

TEST(AllreduceHierarchical, StagingHoldsWhatTheNetworkTouchesAndNoMore) {
  const HostLayout layout(blocks_of({4, 4}));
  const auto schedules = schedules_on(
      layout, 1 << 16, {.chunk_elements = 1024, .mapped_elements = 1 << 16, .staged = true});
  for (const Schedule& schedule : schedules) {
    // Four pipeline slots for a slice of two chunks, and two further slots.
    EXPECT_EQ(schedule.staging_elements, 4 * 4 * 1024u);
    for (const Step& step : schedule.steps)
      if (step.kind == StepKind::kSend || step.kind == StepKind::kReceive) {
        EXPECT_EQ(schedule.operands[step.first_source].space, Space::kStaging);
      }
  }
}

TEST(AllreduceHierarchical, KeepsBordersOnCacheLinesAndChunksToTheirSize) {
  for (const std::uint64_t window : {0, 1 << 16}) {
    const HostLayout layout(blocks_of({3, 2}));
    const HierarchicalOptions options{.chunk_elements = 1024, .mapped_elements = window};
    const auto schedules = schedules_on(layout, 50'000, options);
    prove(schedules, {});
    for (const Schedule& schedule : schedules)
      for (const Step& step : schedule.steps) {
        if (step.kind != StepKind::kSend) continue;
        const Operand source = schedule.sources(step).front();
        EXPECT_EQ(source.offset % 64, 0u);
        if (layout.host_of(step.peer) != layout.host_of(schedule.rank)) {
          EXPECT_LE(source.length, 1024u);
        }
      }
  }
}

TEST(AllreduceHierarchical, EveryRankDrivesItsShareOfTheNetwork) {
  const HostLayout layout(blocks_of({4, 4}));
  const auto schedules = schedules_on(layout, 8 * 1024, {.chunk_elements = 64});
  for (const Schedule& schedule : schedules) {
    std::uint64_t sent = 0;
    for (const Step& step : schedule.steps)
      if (step.kind == StepKind::kSend && step.peer / 4 != schedule.rank / 4)
        sent += schedule.sources(step).front().length;
    EXPECT_EQ(sent, 8 * 1024u / 4) << "rank " << schedule.rank;
  }
}

TEST(AllreduceHierarchical, AWindowThatIsSmallForItsHostsGetsSmallBlocks) {
  prove_on(blocks_of({2, 2, 2}), 100,
           {.chunk_elements = 64, .blocks_in_flight = 4, .mapped_elements = 4 * 64});
}

TEST(HostLayout, NumbersHostsByTheirLowestRank) {
  const HostLayout layout(Hosts{7, 3, 7, 5, 3});
  EXPECT_EQ(layout.hosts(), 3);
  EXPECT_EQ(layout.members(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(layout.members(1), (std::vector<int>{1, 4}));
  EXPECT_EQ(layout.host_of(3), 2);
  EXPECT_EQ(layout.most_on_a_host(), 2);
  EXPECT_EQ(layout, HostLayout(Hosts{0, 1, 0, 2, 1}));
  EXPECT_FALSE(layout == HostLayout(Hosts{0, 1, 0, 2, 2}));
}

TEST(HostLayout, OrdersRanksByHostAndPlace) {
  const auto order_of = [](const Hosts& hosts, const std::vector<int>& places) {
    const HostLayout layout(hosts, places);
    return std::vector<int>(layout.order().begin(), layout.order().end());
  };
  EXPECT_EQ(order_of({0, 1, 0, 1}, {}), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(order_of({0, 0, 0, 0}, {0, 1, 0, 1}), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(order_of({0, 1, 0, 1}, {1, 1, 0, 0}), (std::vector<int>{2, 0, 3, 1}));
  EXPECT_TRUE(HostLayout(Hosts{0, 0, 1, 1}).is_in_order());
  EXPECT_FALSE(HostLayout(Hosts{0, 1, 0, 1}).is_in_order());
  EXPECT_TRUE(HostLayout().is_in_order());
  EXPECT_FALSE(HostLayout(Hosts{0, 0, 0}, std::vector<int>{0, 1, 0}) == HostLayout(Hosts{0, 0, 0}));
}

}  // namespace
}  // namespace kolo::test::allreduce_hierarchical_test
