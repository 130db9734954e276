// Proves the schedules over mapped pipeline slots, except the all-reduce's, with the checker for
// every size up to 64: private and mapped memory, on all ranks, on some and on none.
#include "runtime/collectives/allgather_mapped.h"
#include "runtime/collectives/alltoall_mapped.h"
#include "runtime/collectives/gather_scatter_mapped.h"
#include "runtime/collectives/reduce_scatter_mapped.h"

#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kolo::test::mapped_moves_test {
namespace {

// The proof's time grows with the cube of the ranks: larger worlds prove only the richest cases.
constexpr int kManyRanks = 16;

/// Which ranks' own memory the others have mapped: every third rank's, none, all ranks'.
std::vector<std::vector<bool>> directs_of(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<bool> thirds(ranks);
  for (std::size_t rank = 0; rank < ranks; rank += 3) thirds[rank] = true;
  if (size > kManyRanks) return {thirds};
  return {thirds, {}, std::vector<bool>(ranks, true)};
}

void prove_all_ways(const std::vector<Schedule>& schedules, CheckOptions options,
                    const MappedOptions& mapped) {
  for (const auto& direct : directs_of(static_cast<int>(schedules.size()))) {
    options.direct_inputs = direct;
    const Traffic traffic = prove(schedules, options);
    for (const std::uint64_t sent : traffic.elements) EXPECT_EQ(sent, 0U) << "signals alone";
  }
  for (const Schedule& schedule : schedules) {
    EXPECT_LE(schedule.scratch_elements,
              static_cast<std::uint64_t>(mapped.pipeline_slots) * mapped.block_elements);
    EXPECT_TRUE(schedule.scratch_is_mapped || schedule.scratch_elements == 0);
  }
}

class MappedMoves : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  template <class Case>
  std::vector<Case> some_of(std::vector<Case> cases) const {
    if (size() > kManyRanks) cases.erase(cases.begin(), cases.end() - 1);
    return cases;
  }
  /// Counts with holes; all of the cases if there are few ranks.
  std::vector<Counts> counts() const {
    std::vector<Counts> counts = uneven_counts(size());
    std::swap(counts[3], counts.back());
    return some_of(std::move(counts));
  }
  std::vector<Counts> matrices() const {
    std::vector<Counts> matrices = uneven_matrices(size());
    std::swap(matrices[2], matrices.back());
    return some_of(std::move(matrices));
  }
  /// One pipeline slot that is reused again and again, and several with room to spare. A slot's
  /// stripes are one or two elements long.
  std::vector<MappedOptions> options() const {
    const auto others = static_cast<std::uint64_t>(std::max(size() - 1, 1));
    return some_of<MappedOptions>({{.block_elements = 2 * others + 1, .pipeline_slots = 3},
                                   {.block_elements = others, .pipeline_slots = 1}});
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, MappedMoves, ::testing::Range(1, kLargestWorld + 1));

TEST_P(MappedMoves, AllgatherIsRightForUnevenParts) {
  for (const Counts& parts : counts())
    for (const MappedOptions& mapped : {MappedOptions{.block_elements = 3, .pipeline_slots = 1},
                                        {.block_elements = 4, .pipeline_slots = 2}})
      for (const bool in_place : {false, true})
        prove_all_ways(
            schedules_of(size(),
                         [&](int rank) { return allgather_mapped(rank, size(), parts, mapped); }),
            {.kind = OperationKind::kAllgather, .counts = parts, .input_is_output = in_place},
            mapped);
}

// A block that has just been packed is still in the caches.
TEST_P(MappedMoves, AllgatherCopiesEachBlockOfItsOwnPartAfterPackingIt) {
  if (size() == 1) return;
  const Counts parts(static_cast<std::size_t>(size()), 10);
  for (const bool direct : {false, true}) {
    const Schedule schedule =
        allgather_mapped(0, size(), parts, {.block_elements = 4, .direct = direct});
    int blocks = 0;
    StepId packed = 0, copied = 0;
    for (StepId id = 0; id < schedule.steps.size(); ++id) {
      const Step& step = schedule.steps[id];
      if (step.source_count == 0 || schedule.sources(step)[0].space != Space::kInput) continue;
      const auto after = schedule.depends_on(step);
      if (step.stands_in) {
        const bool waits = std::find(after.begin(), after.end(), copied) != after.end();
        EXPECT_EQ(waits, blocks > 0 && !direct);
        packed = id;
      } else {
        EXPECT_EQ(std::vector<StepId>(after.begin(), after.end()), std::vector<StepId>{packed});
        copied = id;
        ++blocks;
      }
    }
    EXPECT_EQ(blocks, 3);
  }
}

TEST_P(MappedMoves, BroadcastIsRightFromEveryKindOfRoot) {
  for (const int root : roots_of(size()))
    for (const std::uint64_t count : {0U, 1U, 4U, 23U})
      for (const MappedOptions& mapped : {MappedOptions{.block_elements = 4, .pipeline_slots = 1},
                                          {.block_elements = 3, .pipeline_slots = 3}})
        for (const bool in_place : {false, true})
          prove_all_ways(
              schedules_of(
                  size(),
                  [&](int rank) { return broadcast_mapped(rank, size(), root, count, mapped); }),
              {.kind = OperationKind::kBroadcast, .root = root, .input_is_output = in_place},
              mapped);
}

TEST_P(MappedMoves, AlltoallIsRightForUnevenParts) {
  for (const Counts& matrix : matrices())
    for (const MappedOptions& mapped : options())
      prove_all_ways(schedules_of(size(),
                                  [&](int rank) {
                                    return alltoall_mapped(rank, size(), shortened(matrix), mapped);
                                  }),
                     {.kind = OperationKind::kAlltoall, .counts = matrix}, mapped);
}

TEST_P(MappedMoves, ReduceScatterIsRightForUnevenParts) {
  for (const Counts& parts : counts())
    for (const MappedOptions& mapped : options())
      for (const bool in_place : {false, true}) {
        prove_all_ways(
            schedules_of(
                size(),
                [&](int rank) { return reduce_scatter_mapped(rank, size(), parts, mapped); }),
            {.kind = OperationKind::kReduceScatter, .counts = parts, .input_is_output = in_place},
            mapped);
      }
}

TEST_P(MappedMoves, GatherIsRightAtEveryKindOfRoot) {
  for (const int root : roots_of(size()))
    for (const Counts& parts : counts())
      for (const MappedOptions& mapped : {MappedOptions{.block_elements = 3, .pipeline_slots = 1},
                                          {.block_elements = 4, .pipeline_slots = 2}})
        for (const bool in_place : {false, true})
          prove_all_ways(schedules_of(size(),
                                      [&](int rank) {
                                        return gather_mapped(rank, size(), root, parts, mapped);
                                      }),
                         {.kind = OperationKind::kGather,
                          .root = root,
                          .counts = parts,
                          .input_is_output = in_place},
                         mapped);
}

TEST_P(MappedMoves, ScatterIsRightFromEveryKindOfRoot) {
  for (const int root : roots_of(size()))
    for (const Counts& parts : counts())
      for (const MappedOptions& mapped : options())
        for (const bool in_place : {false, true})
          prove_all_ways(schedules_of(size(),
                                      [&](int rank) {
                                        return scatter_mapped(rank, size(), root, parts, mapped);
                                      }),
                         {.kind = OperationKind::kScatter,
                          .root = root,
                          .counts = parts,
                          .input_is_output = in_place},
                         mapped);
}

TEST(MappedMovesShape, PiecesLieOnCacheLines) {
  const Counts counts = {1000, 64, 0, 129};
  const MappedOptions mapped{.block_elements = 640, .pipeline_slots = 2};
  const auto schedules =
      schedules_of(4, [&](int rank) { return reduce_scatter_mapped(rank, 4, counts, mapped); });
  prove_all_ways(schedules, {.kind = OperationKind::kReduceScatter, .counts = counts}, mapped);
  for (const Schedule& schedule : schedules)
    for (const Operand& operand : schedule.operands) {
      if (operand.space != Space::kPeer && operand.space != Space::kScratch) continue;
      EXPECT_EQ(operand.offset % 64, 0U);
    }
}

}  // namespace
}  // namespace kolo::test::mapped_moves_test
