// Timing of collective calls: all ranks start together, and each repetition is timed by itself.
// Main thread of every rank, all in the same order.
#pragma once

#include "tools/perf/statistics.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

namespace kolo::perf {

/// {"time_us", "p10_us", "p50_us", "p90_us", "p99_us"}; time_us is the median.
nlohmann::json to_json(const Statistics& microseconds);

/// Every rank waits for every other rank.
void align();

/// Replaces each sample by its mean over the ranks. Collective.
void average_over_ranks(std::vector<double>& samples);

/// Microseconds that `call` takes on this rank, once all ranks are aligned.
template <class Call>
double time_once(const Call& call) {
  align();
  const auto begin = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count();
}

}  // namespace kolo::perf
