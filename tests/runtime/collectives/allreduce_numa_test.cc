// Proves the schedules of the allreduce by NUMA nodes with the checker, and compares their traffic
// with the file head of the algorithm.
#include "runtime/collectives/allreduce_numa.h"

#include "tests/support/schedule_checker.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace kolo::test::allreduce_numa_test {
namespace {

/// Ranks in blocks, so that nodes differ by at most one rank.
HostLayout in_blocks(int ranks, int nodes) {
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank * nodes / ranks);
  return HostLayout(node_of);
}

std::vector<Schedule> schedules_of(const HostLayout& nodes, std::uint64_t count,
                                   const MappedOptions& options) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < nodes.size(); ++rank)
    schedules.push_back(allreduce_numa(rank, nodes, count, options));
  return schedules;
}

void prove(const HostLayout& nodes, std::uint64_t count, const MappedOptions& options) {
  SCOPED_TRACE(::testing::Message() << nodes.size() << " ranks on " << nodes.hosts() << " nodes, "
                                    << count << " elements, blocks of " << options.block_elements);
  const std::vector<Schedule> schedules = schedules_of(nodes, count, options);
  const auto check = [&](const CheckOptions& check_options, const char* how) {
    const auto traffic = check_schedules(schedules, check_options);
    ASSERT_TRUE(traffic.ok()) << traffic.error().message << " (" << how << ")";
    for (const std::uint64_t sent : traffic->elements) EXPECT_EQ(sent, 0U) << "signals alone";
  };
  const auto ranks = static_cast<std::size_t>(nodes.size());
  check({}, "private memory");
  check({.input_is_output = true}, "private memory in place");
  if (ranks > 16) return;  // the proof's time grows with the cube of the ranks
  const std::vector<bool> all(ranks, true);
  std::vector<bool> even(ranks), thirds(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    even[rank] = rank % 2 == 0;
    thirds[rank] = rank % 3 == 0;
  }
  check({.direct_inputs = all, .direct_outputs = all}, "mapped memory");
  check({.input_is_output = true, .direct_inputs = all, .direct_outputs = all},
        "mapped memory in place");
  check({.direct_inputs = even, .direct_outputs = thirds}, "some of it mapped");
  check({.input_is_output = true, .direct_inputs = even, .direct_outputs = even},
        "some of it mapped, in place");
}

class AllreduceNuma : public ::testing::TestWithParam<int> {};

TEST_P(AllreduceNuma, IsRightForOneToEightNodes) {
  const int size = GetParam();
  const auto ranks = static_cast<std::uint64_t>(size);
  for (const int nodes : {1, 2, 3, 4, 8}) {
    if (nodes > size) continue;
    const HostLayout layout = in_blocks(size, nodes);
    for (const std::uint64_t count : std::set<std::uint64_t>{0, 1, ranks - 1, 2 * ranks + 1})
      prove(layout, count, {.block_elements = 2 * ranks, .pipeline_slots = 2});
    if (size > 16) continue;
    prove(layout, 5 * 2 * ranks - 1, {.block_elements = 2 * ranks, .pipeline_slots = 2});
    prove(layout, 4 * 2 * ranks, {.block_elements = 2 * ranks, .pipeline_slots = 1});
  }
}

class AllreduceNumaOfFew : public ::testing::TestWithParam<int> {};

TEST_P(AllreduceNumaOfFew, IsRightWhereNodesDiffer) {
  const int size = GetParam();
  const auto ranks = static_cast<std::uint64_t>(size);
  std::vector<int> alone(ranks, 0), by_turns(ranks), backwards(ranks);
  alone.back() = 1;
  for (int rank = 0; rank < size; ++rank) {
    by_turns[static_cast<std::size_t>(rank)] = rank % 3;
    backwards[static_cast<std::size_t>(rank)] = 2 - rank * 3 / size;
  }
  for (const std::vector<int>& node_of : {alone, by_turns, backwards})
    prove(HostLayout(node_of), 9 * ranks + 1, {.block_elements = 3 * ranks, .pipeline_slots = 2});
}

TEST_P(AllreduceNumaOfFew, IsRightWhereSomeRanksSumForOthers) {
  const int size = GetParam();
  const auto ranks = static_cast<std::uint64_t>(size);
  for (const std::vector<int>& owners : {std::vector<int>{0}, {0, size - 1}})
    prove(in_blocks(size, 2), 9 * ranks + 1,
          {.block_elements = 3 * ranks, .pipeline_slots = 2, .owners = owners});
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllreduceNuma, ::testing::Range(2, kLargestWorld + 1));
INSTANTIATE_TEST_SUITE_P(Sizes, AllreduceNumaOfFew, ::testing::Range(2, 13));

TEST(AllreduceNumaTraffic, AFractionOfTheFlatOneBetweenNodes) {
  constexpr int kNodes = 4, kRanks = 8;  // ranks of a node
  constexpr std::uint64_t kCount = 64 * 32 * 16;
  const HostLayout nodes = in_blocks(kNodes * kRanks, kNodes);
  const MappedOptions options{.block_elements = kCount, .pipeline_slots = 1};
  for (const Schedule& schedule : schedules_of(nodes, kCount, options)) {
    std::uint64_t far = 0, signals = 0;
    for (const Step& step : schedule.steps) signals += step.kind == StepKind::kSignal;
    for (const Operand& operand : schedule.operands)
      if (operand.space == Space::kPeer &&
          nodes.host_of(operand.rank) != nodes.host_of(schedule.rank))
        far += operand.length;
    EXPECT_EQ(far, 2 * kCount * (kNodes - 1) / (kNodes * kRanks));
    EXPECT_EQ(signals, 2 * (kRanks - 1) + 2 * (kNodes - 1));
  }
}

}  // namespace
}  // namespace kolo::test::allreduce_numa_test
