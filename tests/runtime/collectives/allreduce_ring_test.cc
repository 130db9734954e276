// Proves the ring's schedules with the checker for every size up to 64, and compares steps and
// bytes with the file head of the algorithm.
#include "runtime/collectives/allreduce_ring.h"

#include "tests/support/sanitizers.h"
#include "tests/support/schedule_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace kolo::test::allreduce_ring_test {
namespace {

std::vector<Schedule> ring_of_all(int size, std::uint64_t count, const RingOptions& options) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank)
    schedules.push_back(allreduce_ring(rank, size, count, options));
  return schedules;
}

/// Checks both kinds of user memory, and the bytes on the wire.
void prove(int size, std::uint64_t count, const RingOptions& options) {
  SCOPED_TRACE(::testing::Message() << size << " ranks, " << count << " elements, chunks of "
                                    << options.chunk_elements << ", " << options.blocks_in_flight
                                    << " blocks, placement " << static_cast<int>(options.placement)
                                    << (options.bidirectional ? ", both ways" : ""));
  const std::vector<Schedule> schedules = ring_of_all(size, count, options);
  const auto ranks = static_cast<std::uint64_t>(size);
  const std::uint64_t least_blocks = options.bidirectional && count >= 2 * ranks ? 2 : 0;
  const std::uint64_t blocks = std::max(least_blocks, (count + options.chunk_elements * ranks - 1) /
                                                          (options.chunk_elements * ranks));

  for (const bool input_is_output : {false, true}) {
    const auto traffic = check_schedules(schedules, {.input_is_output = input_is_output});
    ASSERT_TRUE(traffic.ok()) << traffic.error().message << " (input is output: " << input_is_output
                              << ")";
    const std::uint64_t sent =
        std::accumulate(traffic->elements.begin(), traffic->elements.end(), std::uint64_t{0});
    EXPECT_EQ(sent, 2 * count * (ranks - 1));
    for (int r = 0; r < size; ++r) {
      const auto rank = static_cast<std::size_t>(r);
      EXPECT_LE(traffic->messages[rank], 2 * (ranks - 1) * blocks);
      if (count % (ranks * std::max<std::uint64_t>(blocks, 1)) == 0 && blocks > 0) {
        EXPECT_EQ(traffic->elements[rank], 2 * count * (ranks - 1) / ranks);
        EXPECT_EQ(traffic->messages[rank], 2 * (ranks - 1) * blocks);
      }
    }
  }
}

class AllreduceRing : public ::testing::TestWithParam<int> {};

TEST_P(AllreduceRing, IsRightForCountsBelowAndAroundOneBlock) {
  const int size = GetParam();
  const auto ranks = static_cast<std::uint64_t>(size);
  for (const std::uint64_t count : std::set<std::uint64_t>{0, 1, ranks - 1, ranks, 2 * ranks + 1})
    for (const Placement placement : {Placement::kInPlace, Placement::kPacked})
      for (const bool both_ways : {false, true})
        prove(size, count,
              {.chunk_elements = 3,
               .blocks_in_flight = 2,
               .placement = placement,
               .bidirectional = both_ways});
}

TEST_P(AllreduceRing, IsRightForSeveralBlocks) {
  const int size = GetParam();
  const auto ranks = static_cast<std::uint64_t>(size);
  for (const Placement placement : {Placement::kInPlace, Placement::kPacked}) {
    // Two blocks in flight and five blocks: slots are reused twice. The last block is not full.
    prove(size, 5 * 2 * ranks - 1,
          {.chunk_elements = 2, .blocks_in_flight = 2, .placement = placement});
    prove(size, 3 * 2 * ranks,
          {.chunk_elements = 2, .blocks_in_flight = 1, .placement = placement});
    prove(size, 5 * 2 * ranks - 1,
          {.chunk_elements = 2,
           .blocks_in_flight = 3,
           .placement = placement,
           .bidirectional = true});
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllreduceRing, ::testing::Range(1, kLargestWorld + 1));

TEST(AllreduceRingShape, KeepsToTheChunkSizeAndMakesNoCrumbs) {
  // Large enough for borders on cache lines; one element more than whole blocks.
  for (const int size : {1, 2, 3, 8}) {
    const auto ranks = static_cast<std::uint64_t>(size);
    const RingOptions options{.chunk_elements = 1024, .placement = Placement::kPacked};
    const std::uint64_t count = 3 * 1024 * ranks + 1;
    prove(size, count, options);
    std::uint64_t shortest = count, longest = 0;
    for (const Schedule& schedule : ring_of_all(size, count, options))
      for (const Operand& operand : schedule.operands) {
        shortest = std::min(shortest, operand.length);
        longest = std::max(longest, operand.length);
      }
    EXPECT_LE(longest, 1024u);
    EXPECT_GE(shortest + 128, longest) << size << " ranks";
  }
}

TEST(AllreduceRingShape, ScratchHoldsSlotsAloneWhenInPlace) {
  const RingOptions options{.chunk_elements = 1024, .blocks_in_flight = 4};
  EXPECT_EQ(allreduce_ring(0, 4, 1 << 20, options).scratch_elements, 4u * 3 * 1024);
  EXPECT_EQ(allreduce_ring(0, 2, 1 << 20, options).scratch_elements, 4u * 1024);
  EXPECT_EQ(allreduce_ring(0, 1, 1 << 20, options).scratch_elements, 0u);
}

TEST(AllreduceRingShape, GoesBothWaysWithHalfOfTheBytes) {
  const int size = 5;
  for (const std::uint64_t count : {std::uint64_t{1000}, std::uint64_t{16} * 5 * 64}) {
    const auto sent_to = [&](int peer) {
      const Schedule schedule =
          allreduce_ring(2, size, count, {.chunk_elements = 64, .bidirectional = true});
      std::uint64_t elements = 0;
      for (const Step& step : schedule.steps)
        if (step.kind == StepKind::kSend && step.peer == peer)
          elements += schedule.sources(step).front().length;
      return elements;
    };
    EXPECT_NEAR(static_cast<double>(sent_to(1)), static_cast<double>(sent_to(3)), 100);
    EXPECT_NEAR(static_cast<double>(sent_to(1)), static_cast<double>(count * 4 / 5), 100);
  }
}

TEST(AllreduceRingShape, CountsItsStepsAsDocumented) {
  const int size = 5;
  const RingOptions options{
      .chunk_elements = 64, .blocks_in_flight = 2, .placement = Placement::kPacked};
  const Schedule schedule = allreduce_ring(3, size, 4 * 5 * 64, options);  // four full blocks
  const auto number_of = [&](StepKind kind) {
    return std::count_if(schedule.steps.begin(), schedule.steps.end(),
                         [&](const Step& step) { return step.kind == kind; });
  };
  EXPECT_EQ(number_of(StepKind::kSend), 4 * 2 * (size - 1));
  EXPECT_EQ(number_of(StepKind::kReceive), 4 * 2 * (size - 1));
  EXPECT_EQ(number_of(StepKind::kReduce), 4 * (size - 1));
  // One copy to start, one per unpacked chunk; joins for the two blocks that others wait for.
  EXPECT_EQ(number_of(StepKind::kCopy), 4 * (1 + size) + 2);
}

}  // namespace
}  // namespace kolo::test::allreduce_ring_test
