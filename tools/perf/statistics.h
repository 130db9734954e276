// What is made of the samples: percentiles, ratios, and which of them belong together. Pure
// functions; the sweep and the step call them.
#pragma once

#include <string_view>
#include <vector>

namespace kolo::perf {

/// Of the samples, in their unit.
struct Statistics {
  double p10 = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};
/// Each the sample nearest to that place of their order; of no samples, zeros.
Statistics statistics_of(std::vector<double> samples);
/// Of numerator / denominator, repetition by repetition.
Statistics ratios(const std::vector<double>& numerator, const std::vector<double>& denominator);

/// On virtual machines a cache line takes about 50 or about 240 ns from core to core, and this
/// flips by itself; results of different states say nothing about each other.
enum class State {
  kUnknown,  ///< not probed: no host has two ranks, or some have no core of their own
  kNear,
  kFar,
};
/// "-", "near", "far".
std::string_view to_string(State state);

struct Reading {
  State state = State::kUnknown;
  double ns = 0;      ///< one way from core to core; median of several short loops
  bool busy = false;  ///< programs other than the ranks wanted to run on the first host
};

/// The samples that were taken in one state of the machine.
struct StateGroup {
  State state = State::kUnknown;
  double probe_ns = 0;  ///< mean of the readings around these samples
  double busy = 0;      ///< share of these readings that met other programs
  /// By variant, in the order of the repetitions: the n-th of each were taken together.
  std::vector<std::vector<double>> samples;
};
struct StateGroups {
  std::vector<StateGroup> groups;  ///< the largest first; one at least
  int dropped = 0;  ///< repetitions in no group: the state changed, or was seldom met
};

/// Sorts repetitions by the state on which the readings before and after them agree. Where most
/// cannot be sorted, there is one group of all of them, with state kUnknown. `samples` is by
/// variant, each with as many repetitions as there are readings: one at least.
StateGroups grouped_by_state(const std::vector<std::vector<double>>& samples,
                             const std::vector<Reading>& before, const std::vector<Reading>& after);

}  // namespace kolo::perf
