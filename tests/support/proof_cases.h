// The worlds and uneven parts with which the tests of the algorithms prove their schedules.
// Header-only; used by tests/runtime/collectives.
#pragma once

#include "runtime/collectives/schedule.h"
#include "tests/support/sanitizers.h"
#include "tests/support/schedule_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

namespace kolo::test {

using Counts = std::vector<std::uint64_t>;

/// One part per rank: none, equal, odd, with holes, and all with one rank.
inline std::vector<Counts> uneven_counts(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  Counts holes, only_last(ranks, 0);
  for (std::size_t r = 0; r < ranks; ++r) holes.push_back(r * 5 % 8);
  only_last.back() = 23;
  return {Counts(ranks, 0), Counts(ranks, 1), Counts(ranks, 7), holes, only_last};
}

/// Rows from each rank to each rank: none, equal, odd with holes, and all from one to one.
inline std::vector<Counts> uneven_matrices(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  Counts holes, one_pair(ranks * ranks, 0);
  for (std::size_t i = 0; i < ranks; ++i)
    for (std::size_t j = 0; j < ranks; ++j) holes.push_back((i * 3 + j * 5) % 6);
  one_pair[ranks - 1] = 23;
  return {Counts(ranks * ranks, 0), Counts(ranks * ranks, 1), holes, one_pair};
}

/// What an alltoall's ScheduleRequest::counts may be instead: one number if all are equal.
inline Counts shortened(const Counts& matrix) {
  const bool is_even = std::equal(matrix.begin() + 1, matrix.end(), matrix.begin());
  return is_even ? Counts{matrix.front()} : matrix;
}

inline std::uint64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

/// First, middle and last.
inline std::set<int> roots_of(int size) { return {0, size / 2, size - 1}; }

/// Schedules of all ranks from make(rank).
template <class Make>
std::vector<Schedule> schedules_of(int size, Make&& make) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank) schedules.push_back(make(rank));
  return schedules;
}

/// Empty traffic, and a failed test, if the schedules are wrong.
inline Traffic prove(const std::vector<Schedule>& schedules, const CheckOptions& options) {
  const auto traffic = check_schedules(schedules, options);
  if (traffic.ok()) return *traffic;
  ADD_FAILURE() << traffic.error().message << " (" << schedules.size()
                << " ranks, input is output: " << options.input_is_output
                << ", parts: " << ::testing::PrintToString(options.counts) << ")";
  const Counts none(schedules.size(), 0);
  return {none, none, none};
}

}  // namespace kolo::test
