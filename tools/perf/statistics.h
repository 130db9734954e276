// Statistics of the samples: percentiles, ratios, and which samples belong together. Pure
// functions; the sweep and the step call them.
#pragma once

#include <string_view>
#include <vector>

namespace kolo::perf {

/// Percentiles, in the samples' unit.
struct Statistics {
  double p10 = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};
/// Each percentile is the sample nearest to it in sorted order; zeros without samples.
Statistics statistics_of(std::vector<double> samples);
/// Statistics of numerator / denominator, repetition by repetition.
Statistics ratios(const std::vector<double>& numerator, const std::vector<double>& denominator);

/// On virtual machines a cache line takes about 50 or about 240 ns from core to core, and the
/// machine changes between these states by itself. Results from different states cannot be
/// compared.
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

/// Share of readings with other programs from which samples count as disturbed.
inline constexpr double kBusy = 0.1;

/// The samples that were taken in one state of the machine.
struct StateGroup {
  State state = State::kUnknown;
  double probe_ns = 0;  ///< mean of the readings around these samples
  double busy = 0;      ///< share of these readings that met other programs
  /// By variant, in the order of the repetitions: the n-th samples of all variants were taken
  /// together.
  std::vector<std::vector<double>> samples;
};
struct StateGroups {
  std::vector<StateGroup> groups;  ///< the largest first; at least one
  int dropped = 0;                 ///< repetitions in no group: the state changed, or was rare
};

/// Sorts repetitions by the state on which the readings before and after them agree. If most cannot
/// be sorted, one group holds all of them, with state kUnknown. `samples` has one entry per
/// variant, each with as many repetitions as there are readings, at least one.
StateGroups grouped_by_state(const std::vector<std::vector<double>>& samples,
                             const std::vector<Reading>& before, const std::vector<Reading>& after);

}  // namespace kolo::perf
