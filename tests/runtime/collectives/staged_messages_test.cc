// Proves that schedules with messages are still right when their messages are staged, for every
// size up to 64, and that the network then touches only staging memory.
#include "runtime/collectives/staged_messages.h"

#include "runtime/collectives/alltoall_bruck.h"
#include "runtime/collectives/broadcast_double_tree.h"
#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace kolo::test::staged_messages_test {
namespace {

constexpr std::uint64_t kChunk = 3;

/// Proves the schedules with and without staging, and that both send the same.
void prove_staged(int size, ScheduleRequest request, const CheckOptions& options, int slots) {
  request.size = size;
  request.chunk_elements = kChunk;
  request.blocks_in_flight = slots;
  const auto make = [&](bool staged) {
    return schedules_of(size, [&](int rank) {
      ScheduleRequest own = request;
      own.rank = rank;
      own.staged = staged;
      return make_schedule(own);
    });
  };
  const auto staged = make(true);
  const Traffic as_it_was = prove(make(false), options), traffic = prove(staged, options);
  EXPECT_EQ(traffic.elements, as_it_was.elements);
  EXPECT_EQ(traffic.messages, as_it_was.messages);
  for (const Schedule& schedule : staged) {
    EXPECT_EQ(schedule.scratch_elements, 0U);
    for (const Step& step : schedule.steps) {
      if (step.kind != StepKind::kSend && step.kind != StepKind::kReceive) continue;
      const auto message =
          step.kind == StepKind::kSend ? schedule.sources(step) : schedule.destinations(step);
      EXPECT_EQ(message.front().space, Space::kStaging);
    }
  }
}

class StagedMessages : public ::testing::TestWithParam<int> {};

TEST_P(StagedMessages, OfPartsByRankAreRight) {
  const int size = GetParam();
  for (const OperationKind collective : {OperationKind::kAllgather, OperationKind::kReduceScatter})
    for (const Counts& counts : uneven_counts(size))
      for (const int slots : {1, 3})
        for (const bool same : {false, true})
          prove_staged(size,
                       {.kind = collective,
                        .in_place = same && collective == OperationKind::kAllgather,
                        .counts = counts},
                       {.kind = collective, .counts = counts, .input_is_output = same}, slots);
}

TEST_P(StagedMessages, OfARootAreRight) {
  const int size = GetParam();
  for (const int root : roots_of(size))
    for (const bool same : {false, true}) {
      for (const std::uint64_t count : {0, 1, 31})
        prove_staged(size, {.kind = OperationKind::kBroadcast, .root = root, .count = count},
                     {.kind = OperationKind::kBroadcast, .root = root, .input_is_output = same}, 3);
      for (const OperationKind collective : {OperationKind::kGather, OperationKind::kScatter})
        for (const Counts& counts : uneven_counts(size))
          prove_staged(
              size, {.kind = collective, .root = root, .in_place = same, .counts = counts},
              {.kind = collective, .root = root, .counts = counts, .input_is_output = same}, 2);
    }
}

TEST_P(StagedMessages, OfAnAlltoallAreRight) {
  const int size = GetParam();
  for (const Counts& matrix : uneven_matrices(size))
    for (const int slots : {1, 3})
      prove_staged(size, {.kind = OperationKind::kAlltoall, .counts = matrix},
                   {.kind = OperationKind::kAlltoall, .counts = matrix}, slots);
}

TEST_P(StagedMessages, OfEveryAllreduceAreRight) {
  const int size = GetParam();
  for (const Algorithm algorithm : kAlgorithms) {
    if (algorithm == Algorithm::kMapped || algorithm == Algorithm::kHierarchical) continue;
    for (const std::uint64_t count : {0, 1, 31})
      for (const Placement placement : {Placement::kInPlace, Placement::kPacked})
        prove_staged(size, {.count = count, .placement = placement, .algorithm = algorithm}, {}, 2);
  }
}

TEST_P(StagedMessages, FromPointToPointAreRight) {
  const int size = GetParam();
  const int from = size - 1, to = 0;
  for (const std::uint64_t count : {0, 1, 31})
    prove_staged(size, {.kind = OperationKind::kSend, .root = from, .peer = to, .count = count},
                 {.kind = OperationKind::kSend, .root = from, .peer = to}, 2);
}

INSTANTIATE_TEST_SUITE_P(Sizes, StagedMessages, ::testing::Range(1, kLargestWorld + 1));

TEST(StagedMessagesShape, ScratchIsStagingMemory) {
  const int size = 5;
  const Counts matrix(25, 2);
  prove(schedules_of(size,
                     [&](int rank) {
                       return stage_messages(alltoall_bruck(rank, size, matrix), {.slots = 1});
                     }),
        {.kind = OperationKind::kAlltoall, .counts = matrix});
}

const std::vector<std::vector<int>> kChain = {{0, 1, 2}};

TEST(StagedMessagesShape, WhatIsPassedOnIsNotReadFromTheOutput) {
  const Schedule schedule = stage_messages(
      broadcast_double_tree(1, kChain, 30, {.chunk_elements = kChunk, .chunks_in_flight = 2}),
      {.slots = 2, .passes_on = true});
  EXPECT_EQ(std::count_if(schedule.steps.begin(), schedule.steps.end(),
                          [](const Step& step) { return step.kind == StepKind::kCopy; }),
            10);
  for (const Step& step : schedule.steps)
    for (const Operand& source : schedule.sources(step)) EXPECT_EQ(source.space, Space::kStaging);
}

TEST(StagedMessagesShape, MemoryIsThatOfTheSlots) {
  const auto staging = [](std::uint64_t count) {
    return stage_messages(broadcast_double_tree(1, kChain, count,
                                                {.chunk_elements = 64, .chunks_in_flight = 2}),
                          {.slots = 2})
        .staging_elements;
  };
  EXPECT_EQ(staging(64 * 100), 4 * 64U);
  EXPECT_EQ(staging(64 * 1000), 4 * 64U);
}

}  // namespace
}  // namespace kolo::test::staged_messages_test
