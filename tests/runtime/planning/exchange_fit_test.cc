// The limits of the exchange follow measured times.
#include "runtime/planning/exchange_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kolo {
namespace {

constexpr double kNever = ExchangeTimes::kNever;
constexpr std::size_t KiB = 1 << 10;

ExchangeLimits defaults() { return exchange_limits(2, true, ExchangeUse::kByCost); }

/// How an all-reduce goes under these limits, as the exchange decides.
double time_of(const ExchangeTimes& row, const ExchangeLimits& limits) {
  const std::size_t most = row.in_arena ? limits.in_arena : limits.copied;
  if (row.bytes > most) return row.schedule_us;
  const bool two_hops =
      row.bytes > limits.one_shot ||
      (row.in_arena && limits.depends_on_arena(OperationKind::kAllreduce, row.bytes));
  return two_hops ? row.two_shot_us : row.one_shot_us;
}

TEST(ExchangeFit, WithoutMeasurementsTheConstantsStay) {
  const ExchangeLimits limits = fitted(defaults(), {});
  EXPECT_EQ(limits.one_shot, defaults().one_shot);
  EXPECT_EQ(limits.copied, defaults().copied);
  EXPECT_EQ(limits.in_arena, defaults().in_arena);
  EXPECT_EQ(limits.two_shot_in_arena, defaults().two_shot_in_arena);
}

// Two virtual cores that exchange a line in 350 to 590 ns: copies into lines of the other core cost
// so much that a schedule's blocks are faster from 64 KiB on.
TEST(ExchangeFit, WhereLinesAreSlowSchedulesBeginEarlier) {
  const std::vector<ExchangeTimes> times = {
      {4 * KiB, false, 2.6, 3.9, 12}, {16 * KiB, false, 6.5, 7.0, 13},
      {64 * KiB, false, 22, 21, 17},  {128 * KiB, false, 45, 42.7, 25},
      {4 * KiB, true, 2.6, 2.9, 12},  {16 * KiB, true, 6.5, 3.6, 12},
      {128 * KiB, true, 45, 8, 13},   {1024 * KiB, true, kNever, 54, 60},
  };
  const ExchangeLimits limits = fitted(defaults(), times);
  EXPECT_EQ(limits.one_shot, 16 * KiB);
  EXPECT_EQ(limits.copied, 16 * KiB);
  EXPECT_EQ(limits.two_shot_in_arena, 16 * KiB);
  EXPECT_EQ(limits.in_arena, defaults().in_arena);
  EXPECT_EQ(limits.staged, defaults().staged) << "broadcasts and others keep the segments' room";
  for (const ExchangeTimes& row : times)
    EXPECT_EQ(time_of(row, limits), std::min({row.one_shot_us, row.two_shot_us, row.schedule_us}))
        << row.bytes << (row.in_arena ? " shared" : " private");
}

TEST(ExchangeFit, TwoHopsFromTheSizeWhereTheyAreFaster) {
  const std::vector<ExchangeTimes> times = {
      {32 * KiB, false, 4, 5, 12}, {64 * KiB, false, 8.9, 7.1, 13}, {128 * KiB, false, 19, 15, 18}};
  const ExchangeLimits limits = fitted(defaults(), times);
  EXPECT_EQ(limits.one_shot, 32 * KiB);
  EXPECT_EQ(limits.copied, defaults().copied);
}

TEST(ExchangeFit, AlikeWaysLeaveTheConstant) {
  for (const double one_hop : {0.81, 0.78}) {
    const std::vector<ExchangeTimes> times = {{2 * KiB, true, 0.6, 0.8, 3},
                                              {4 * KiB, true, one_hop, 0.83, 3},
                                              {8 * KiB, true, 1.6, 1.0, 3}};
    EXPECT_EQ(fitted(defaults(), times).two_shot_in_arena, one_hop < 0.8 ? 8 * KiB : 4 * KiB);
  }
}

// One disturbed time does not move a limit past sizes that are clear.
TEST(ExchangeFit, ADisturbedSizeDoesNotDecide) {
  const std::vector<ExchangeTimes> times = {{4 * KiB, false, 3.0, 2.5, 12},
                                            {8 * KiB, false, 2, 4, 12},
                                            {16 * KiB, false, 3, 6, 12},
                                            {32 * KiB, false, 5, 9, 12}};
  EXPECT_EQ(fitted(defaults(), times).one_shot, 32 * KiB);
}

// With many ranks, one hop ends below all sizes that are measured.
TEST(ExchangeFit, WhatIsNotMeasuredKeepsItsLimit) {
  const ExchangeLimits many = exchange_limits(64, true, ExchangeUse::kByCost);
  const std::vector<ExchangeTimes> times = {{4 * KiB, false, 30, 9, 20},
                                            {128 * KiB, false, 900, 40, 50}};
  EXPECT_EQ(fitted(many, times).one_shot, many.one_shot);
  EXPECT_EQ(fitted(many, times).copied, many.copied);
}

TEST(ExchangeFit, NoWayThatIsNotThere) {
  const std::vector<ExchangeTimes> times = {{4 * KiB, true, 2, 1, 9},
                                            {256 * KiB, true, kNever, 9, 8},
                                            {1024 * KiB, true, kNever, 40, 30}};
  const ExchangeLimits limits = fitted(defaults(), times);
  EXPECT_EQ(limits.two_shot_in_arena, 4 * KiB);
  EXPECT_EQ(limits.one_shot, defaults().one_shot);
  // The segments carry private all-reduces of up to 128 KiB, so no less of the arena's.
  EXPECT_EQ(limits.in_arena, 4 * KiB);
}

}  // namespace
}  // namespace kolo
