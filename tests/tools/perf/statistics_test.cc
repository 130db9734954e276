// kolo-perf's statistics of its samples.
#include "tools/perf/statistics.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <numeric>

namespace kolo::perf::statistics_test {
namespace {

constexpr Reading kNear = {State::kNear, 50};
constexpr Reading kFar = {State::kFar, 240};

/// Repetitions 0, 1, 2, … of two variants, the second a hundred times slower.
std::vector<std::vector<double>> numbered(std::size_t repetitions) {
  std::vector<double> first(repetitions);
  std::iota(first.begin(), first.end(), 0);
  std::vector<double> second = first;
  for (double& sample : second) sample *= 100;
  return {first, second};
}

TEST(Statistics, ArePlacesInTheOrder) {
  std::vector<double> samples(101);
  std::iota(samples.rbegin(), samples.rend(), 0);
  const Statistics statistics = statistics_of(samples);
  EXPECT_EQ(statistics.p10, 10);
  EXPECT_EQ(statistics.p50, 50);
  EXPECT_EQ(statistics.p90, 90);
  EXPECT_EQ(statistics.p99, 99);
  EXPECT_EQ(statistics_of({7}).p99, 7);
  EXPECT_EQ(statistics_of({}).p50, 0);
}

TEST(Statistics, RatiosAreTakenRepetitionByRepetition) {
  // The ratio of the medians would be 2 / 20.
  EXPECT_DOUBLE_EQ(ratios({1, 2, 30}, {10, 20, 3}).p50, 0.1);
  EXPECT_DOUBLE_EQ(ratios({1, 2, 30}, {10, 20, 3}).p90, 10);
}

TEST(StateGroups, OneStateIsOneGroup) {
  const std::vector<Reading> readings(5, kNear);
  const StateGroups result = grouped_by_state(numbered(5), readings, readings);
  ASSERT_EQ(result.groups.size(), 1U);
  EXPECT_EQ(result.groups[0].state, State::kNear);
  EXPECT_EQ(result.groups[0].samples, numbered(5));
  EXPECT_EQ(result.groups[0].probe_ns, 50);
  EXPECT_EQ(result.dropped, 0);
}

TEST(StateGroups, TheShareOfReadingsWithOtherProgramsIsKept) {
  const Reading busy = {State::kNear, 50, true};
  const StateGroups result =
      grouped_by_state(numbered(4), {busy, kNear, kNear, kNear}, {busy, busy, kNear, kNear});
  EXPECT_DOUBLE_EQ(result.groups[0].busy, 3.0 / 8);
}

TEST(StateGroups, RepetitionsDuringAChangeAreDropped) {
  //                                    0      1      2      3     4     5     6     7
  const std::vector<Reading> before = {kNear, kNear, kNear, kNear, kFar, kFar, kFar, kFar};
  const std::vector<Reading> after = {kNear, kNear, kNear, kFar, kFar, kFar, kFar, kFar};
  const StateGroups result = grouped_by_state(numbered(8), before, after);
  ASSERT_EQ(result.groups.size(), 2U);
  EXPECT_EQ(result.groups[0].state, State::kFar);
  EXPECT_EQ(result.groups[0].samples[0], (std::vector<double>{4, 5, 6, 7}));
  EXPECT_EQ(result.groups[0].samples[1], (std::vector<double>{400, 500, 600, 700}));
  EXPECT_EQ(result.groups[1].state, State::kNear);
  EXPECT_EQ(result.groups[1].samples[0], (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(result.dropped, 1);
}

TEST(StateGroups, AFewRepetitionsAreNoGroup) {
  const std::vector<Reading> readings = {kNear, kNear, kNear, kNear, kFar, kFar};
  const StateGroups result = grouped_by_state(numbered(6), readings, readings);
  ASSERT_EQ(result.groups.size(), 1U);
  EXPECT_EQ(result.groups[0].state, State::kNear);
  EXPECT_EQ(result.dropped, 2);
}

TEST(StateGroups, AStateThatChangesAllTheTimeIsUnknown) {
  const StateGroups result =
      grouped_by_state(numbered(4), std::vector<Reading>(4, kNear), std::vector<Reading>(4, kFar));
  ASSERT_EQ(result.groups.size(), 1U);
  EXPECT_EQ(result.groups[0].state, State::kUnknown);
  EXPECT_EQ(result.groups[0].samples, numbered(4));
  EXPECT_EQ(result.dropped, 0);
}

TEST(StateGroups, OneRepetitionIsEnough) {
  const StateGroups result = grouped_by_state(numbered(1), {kFar}, {kFar});
  ASSERT_EQ(result.groups.size(), 1U);
  EXPECT_EQ(result.groups[0].state, State::kFar);
}

}  // namespace
}  // namespace kolo::perf::statistics_test
