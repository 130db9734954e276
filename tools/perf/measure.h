// Timing of collective calls: all ranks start together, and each repetition is timed by itself.
// Main thread of every rank, all in the same order.
#pragma once

#include "tools/perf/statistics.h"

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace kolo::perf {

/// {"time_us", "p10_us", "p50_us", "p90_us", "p99_us"}; time_us is the median.
nlohmann::json to_json(const Statistics& microseconds);

/// Collective. Whether every rank has a core of its own; without one, spinning only disturbs. The
/// same on every rank.
bool ranks_have_cores();

/// Every rank waits for every other rank.
void align();

/// Replaces each sample by its mean over the ranks. Collective.
void average_over_ranks(std::vector<double>& samples);

/// When a call began and ended on this rank: nanoseconds of a clock that the ranks of a host share.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
/// Microseconds of each call, as the mean over the ranks of what it took them. Collective.
std::vector<double> means_over_ranks(const std::vector<Span>& spans);
/// Microseconds of each call, from when the last rank began until the last rank ended. Collective;
/// the ranks share a host.
std::vector<double> from_last_begin_to_last_end(const std::vector<Span>& spans);

template <class Call>
Span span_of(const Call& call) {
  const auto now = [] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  Span span;
  span.begin = now();
  call();
  span.end = now();
  return span;
}

/// Microseconds that `call` takes on this rank, once all ranks are aligned.
template <class Call>
double time_once(const Call& call) {
  align();
  const Span span = span_of(call);
  return static_cast<double>(span.end - span.begin) / 1e3;
}

}  // namespace kolo::perf
