// Proves the two-level schedules other than all-reduce with the checker, for many layouts of hosts,
// plain and staged, and compares the network traffic with the algorithms' file heads.
#include "runtime/collectives/allgather_hierarchical.h"
#include "runtime/collectives/broadcast_hierarchical.h"
#include "runtime/collectives/reduce_scatter_hierarchical.h"
#include "runtime/collectives/staged_messages.h"
#include "tests/support/host_cases.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kolo::test::hierarchical_moves_test {
namespace {

constexpr int kLanes = 2;

/// Windows with pieces of `piece` elements, or fewer where chunks are shorter.
HostsOptions options_for(const HostLayout& layout, std::uint64_t piece, int messages) {
  const auto places = static_cast<std::uint64_t>(layout.size());
  return {.chunk_elements = 3,
          .messages_in_flight = messages,
          .mapped_elements = piece * places * kLanes,
          .pipeline_slots = kLanes};
}

/// Which ranks' own memory the others on the host have mapped: none, every third rank's, all
/// ranks'.
std::vector<std::vector<bool>> directs_of(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<bool> thirds(ranks);
  for (std::size_t rank = 0; rank < ranks; rank += 3) thirds[rank] = true;
  return {{}, thirds, std::vector<bool>(ranks, true)};
}

/// Proves the schedules; returns the elements that leave each host.
Counts prove_all_ways(const std::vector<Schedule>& schedules, const HostLayout& layout,
                      CheckOptions options) {
  std::vector<Schedule> staged;
  for (const Schedule& schedule : schedules)
    staged.push_back(stage_messages(
        schedule, {.slots = 2, .passes_on = options.kind == OperationKind::kBroadcast}));
  for (const bool same : {false, true}) {
    options.input_is_output = same;
    for (const auto& direct : directs_of(layout.size())) {
      options.direct_inputs = direct;
      prove(schedules, options);
      prove(staged, options);
    }
  }
  for (const Schedule& schedule : schedules)
    for (const Step& step : schedule.steps)
      if (step.kind == StepKind::kSend) {
        EXPECT_NE(layout.host_of(step.peer), layout.host_of(schedule.rank)) << "signals alone";
      }
  EXPECT_EQ(sent_across(staged, layout), sent_across(schedules, layout));
  return sent_across(schedules, layout);
}

/// Sum of `counts` over the ranks of a host.
std::uint64_t sum_on(const HostLayout& layout, int host, const Counts& counts) {
  std::uint64_t sum = 0;
  for (const int rank : layout.members(host)) sum += counts[static_cast<std::size_t>(rank)];
  return sum;
}

void prove_moves(const Hosts& hosts) {
  SCOPED_TRACE(::testing::Message() << "hosts " << ::testing::PrintToString(hosts));
  const HostLayout layout(hosts);
  const int size = layout.size();
  for (const Counts& counts : uneven_counts(size))
    for (const int messages : {1, 3}) {
      const HostsOptions options = options_for(layout, 2, messages);
      const Counts gathered = prove_all_ways(
          schedules_of(
              size,
              [&](int rank) { return allgather_hierarchical(rank, layout, counts, options); }),
          layout, {.kind = OperationKind::kAllgather, .counts = counts});
      const Counts scattered = prove_all_ways(
          schedules_of(
              size,
              [&](int rank) { return reduce_scatter_hierarchical(rank, layout, counts, options); }),
          layout, {.kind = OperationKind::kReduceScatter, .counts = counts});
      for (int host = 0; host < layout.hosts(); ++host) {
        const auto h = static_cast<std::size_t>(host);
        const int next = (host + 1) % layout.hosts();
        EXPECT_EQ(gathered[h], total(counts) - sum_on(layout, next, counts));
        EXPECT_EQ(scattered[h], total(counts) - sum_on(layout, host, counts));
      }
    }
  for (const int root : roots_of(size))
    for (const std::uint64_t count : {0, 1, 50}) {
      const HostsOptions options = options_for(layout, 2, 2);
      const Counts sent = prove_all_ways(
          schedules_of(
              size,
              [&](int rank) { return broadcast_hierarchical(rank, layout, root, count, options); }),
          layout, {.kind = OperationKind::kBroadcast, .root = root});
      EXPECT_EQ(total(sent), count * static_cast<std::uint64_t>(layout.hosts() - 1));
      EXPECT_LE(*std::max_element(sent.begin(), sent.end()), count);
    }
}

class HierarchicalMoves : public ::testing::TestWithParam<int> {
 protected:
  int hosts() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Hosts, HierarchicalMoves, ::testing::Range(2, 7));

TEST_P(HierarchicalMoves, AreRightOnEqualHosts) {
  for (const int locals : {1, 2, 3})
    prove_moves(blocks_of(std::vector<int>(static_cast<std::size_t>(hosts()), locals)));
}

TEST_P(HierarchicalMoves, AreRightOnUnequalHosts) {
  std::vector<int> rising, last_alone;
  for (int h = 0; h < hosts(); ++h) {
    rising.push_back(1 + h % 4);
    last_alone.push_back(h == hosts() - 1 ? 1 : 3);
  }
  prove_moves(blocks_of(rising));
  prove_moves(blocks_of(last_alone));
}

TEST_P(HierarchicalMoves, AreRightWhereRanksOfAHostAreNoNeighbours) {
  std::vector<int> rising;
  for (int h = 0; h < hosts(); ++h) rising.push_back(1 + (h * 3 + 1) % 4);
  prove_moves(dealt(rising));
}

TEST(HierarchicalMovesShape, EveryRankDrivesItsShareOfTheNetwork) {
  const HostLayout layout(blocks_of({4, 4}));
  const Counts counts(8, 1000);
  const HostsOptions options{.chunk_elements = 64, .mapped_elements = 1 << 16};
  const auto sent_by = [](const Schedule& schedule) {
    std::uint64_t sent = 0;
    for (const Step& step : schedule.steps)
      if (step.kind == StepKind::kSend) sent += schedule.sources(step).front().length;
    return sent;
  };
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(sent_by(allgather_hierarchical(rank, layout, counts, options)), 1000U);
    EXPECT_EQ(sent_by(reduce_scatter_hierarchical(rank, layout, counts, options)), 1000U);
    EXPECT_NEAR(
        static_cast<double>(sent_by(broadcast_hierarchical(rank, layout, 0, 4096, options))),
        rank < 4 ? 1024.0 : 0.0, 64.0);
  }
}

TEST(HierarchicalMovesShape, WindowsHoldTheLanes) {
  const HostLayout layout(blocks_of({3, 2}));
  const Counts counts(5, 100'000);
  const HostsOptions options{.chunk_elements = 64 << 10, .mapped_elements = 1 << 16};
  for (int rank = 0; rank < 5; ++rank)
    for (const Schedule& schedule : {allgather_hierarchical(rank, layout, counts, options),
                                     reduce_scatter_hierarchical(rank, layout, counts, options),
                                     broadcast_hierarchical(rank, layout, 0, 100'000, options)}) {
      EXPECT_LE(schedule.scratch_elements, options.mapped_elements);
      EXPECT_TRUE(schedule.scratch_is_mapped);
    }
}

}  // namespace
}  // namespace kolo::test::hierarchical_moves_test
