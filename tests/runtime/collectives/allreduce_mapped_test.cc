// Proves the one-pass allreduce's schedules with the checker for every size up to 64, and compares
// them with the file head of the algorithm.
#include "runtime/collectives/allreduce_mapped.h"

#include "tests/support/sanitizers.h"
#include "tests/support/schedule_checker.h"

#include <gtest/gtest.h>

#include <set>

namespace kolo::test::allreduce_mapped_test {
namespace {

std::uint64_t count_of(const Schedule& schedule, StepKind kind) {
  std::uint64_t count = 0;
  for (const Step& step : schedule.steps) count += step.kind == kind && step.source_count > 0;
  return count;
}

void prove(int size, std::uint64_t count, const MappedOptions& options) {
  SCOPED_TRACE(::testing::Message()
               << size << " ranks, " << count << " elements, blocks of " << options.block_elements
               << ", " << options.pipeline_slots << " pipeline_slots");
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank)
    schedules.push_back(allreduce_mapped(rank, size, count, options));
  const auto check_as = [](const std::vector<Schedule>& checked, const CheckOptions& check_options,
                           const char* how) {
    const auto traffic = check_schedules(checked, check_options);
    ASSERT_TRUE(traffic.ok()) << traffic.error().message << " (" << how << ")";
    for (const std::uint64_t sent : traffic->elements) EXPECT_EQ(sent, 0U) << "signals alone";
  };
  const auto check = [&](const CheckOptions& check_options, const char* how) {
    check_as(schedules, check_options, how);
    if (check_options.direct_inputs.empty() || check_options.direct_outputs.empty()) return;
    // The ranks know it beforehand.
    std::vector<Schedule> informed;
    for (int rank = 0; rank < size; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      MappedOptions known = options;
      known.direct = check_options.direct_inputs[r] && check_options.direct_outputs[r];
      informed.push_back(allreduce_mapped(rank, size, count, known));
    }
    check_as(informed, check_options, how);
  };
  // Which ranks' own memory the others have mapped: all, none, or different on each rank.
  const auto ranks = static_cast<std::size_t>(size);
  const std::vector<bool> all(ranks, true);
  std::vector<bool> even(ranks), thirds(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    even[rank] = rank % 2 == 0;
    thirds[rank] = rank % 3 == 0;
  }
  check({}, "private memory");
  check({.input_is_output = true}, "private memory in place");
  check({.direct_inputs = all, .direct_outputs = all}, "mapped memory");
  check({.input_is_output = true, .direct_inputs = all, .direct_outputs = all},
        "mapped memory in place");
  if (size <= 16) {  // the proof's time grows with the cube of the ranks
    check({.direct_inputs = even, .direct_outputs = thirds}, "some of it mapped");
    check({.input_is_output = true, .direct_inputs = even, .direct_outputs = even},
          "some of it mapped, in place");
  }
  const std::uint64_t most =
      static_cast<std::uint64_t>(options.pipeline_slots) * options.block_elements;
  const std::uint64_t blocks = (count + options.block_elements - 1) / options.block_elements;
  const auto others = static_cast<std::uint64_t>(size - 1);
  for (const Schedule& schedule : schedules) {
    EXPECT_LE(schedule.scratch_elements, most);
    EXPECT_EQ(schedule.scratch_is_mapped, size > 1);
    EXPECT_LE(count_of(schedule, StepKind::kReduce), blocks);
    if (size > 1) {
      EXPECT_LE(count_of(schedule, StepKind::kCopy), 2 * others * blocks);
    }
  }
}

class AllreduceMapped : public ::testing::TestWithParam<int> {};

TEST_P(AllreduceMapped, IsRightForCountsBelowAndAroundOneBlock) {
  const int size = GetParam();
  const auto ranks = static_cast<std::uint64_t>(size);
  for (const std::uint64_t count : std::set<std::uint64_t>{0, 1, ranks - 1, ranks, 2 * ranks + 1})
    prove(size, count, {.block_elements = 2 * ranks, .pipeline_slots = 2});
  prove(size, 3, {.block_elements = 1, .pipeline_slots = 2});
}

TEST_P(AllreduceMapped, IsRightWhenLanesAreUsedAgain) {
  const int size = GetParam();
  const auto ranks = static_cast<std::uint64_t>(size);
  prove(size, 2 * 2 * ranks, {.block_elements = 2 * ranks, .pipeline_slots = 1});
  if (size > 16) return;  // the proof's time grows with the cube of the ranks
  prove(size, 5 * 2 * ranks - 1, {.block_elements = 2 * ranks, .pipeline_slots = 2});
}

TEST_P(AllreduceMapped, IsRightWhereSomeRanksSumForOthers) {
  const int size = GetParam();
  if (size > 16) return;  // the proof's time grows with the cube of the ranks
  const auto ranks = static_cast<std::uint64_t>(size);
  std::vector<int> even;
  for (int rank = 0; rank < size; rank += 2) even.push_back(rank);
  for (const std::vector<int>& owners : {std::vector<int>{0}, {size - 1}, even})
    for (const std::uint64_t count : {std::uint64_t{1}, 6 * ranks - 1})
      prove(size, count, {.block_elements = 2 * ranks, .pipeline_slots = 2, .owners = owners});
}

TEST_P(AllreduceMapped, KeepsSlicesOnCacheLines) {
  const int size = GetParam();
  if (size > 8) return;  // the checker simulates every element
  const std::uint64_t count = 64 * 25 + 17;
  prove(size, count, {.block_elements = 640, .pipeline_slots = 2});
  const Schedule schedule =
      allreduce_mapped(0, size, count, {.block_elements = 640, .pipeline_slots = 2});
  for (const Operand& operand : schedule.operands) {
    if (operand.space != Space::kPeer) continue;
    EXPECT_EQ(operand.offset % 64, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllreduceMapped, ::testing::Range(1, kLargestWorld + 1));

}  // namespace
}  // namespace kolo::test::allreduce_mapped_test
