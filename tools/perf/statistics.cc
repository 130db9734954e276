#include "tools/perf/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

namespace kolo::perf {
namespace {

/// A group with fewer repetitions says nothing.
constexpr std::size_t kLeastSamples = 3;

}  // namespace

std::string_view to_string(State state) {
  switch (state) {
    case State::kUnknown:
      return "-";
    case State::kNear:
      return "near";
    case State::kFar:
      return "far";
  }
  return "-";
}

Statistics statistics_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[static_cast<std::size_t>(
        std::lround(share * static_cast<double>(samples.size() - 1)))];
  };
  return {at(0.1), at(0.5), at(0.9), at(0.99)};
}

Statistics ratios(const std::vector<double>& numerator, const std::vector<double>& denominator) {
  std::vector<double> values(numerator.size());
  std::transform(numerator.begin(), numerator.end(), denominator.begin(), values.begin(),
                 std::divides<>());
  return statistics_of(std::move(values));
}

StateGroups grouped_by_state(const std::vector<std::vector<double>>& samples,
                             const std::vector<Reading>& before,
                             const std::vector<Reading>& after) {
  const std::size_t repetitions = before.size();
  const auto collect = [&](State state, const auto& belongs) {
    StateGroup group{.state = state, .samples = std::vector<std::vector<double>>(samples.size())};
    double count = 0;
    for (std::size_t i = 0; i < repetitions; ++i) {
      if (!belongs(i)) continue;
      for (std::size_t v = 0; v < samples.size(); ++v) group.samples[v].push_back(samples[v][i]);
      group.probe_ns += (before[i].ns + after[i].ns) / 2;
      group.busy += ((before[i].busy ? 1 : 0) + (after[i].busy ? 1 : 0)) / 2.0;
      count += 1;
    }
    if (count > 0) {
      group.probe_ns /= count;
      group.busy /= count;
    }
    return group;
  };
  StateGroups result;
  std::size_t kept = 0;
  for (const State state : {State::kUnknown, State::kNear, State::kFar}) {
    StateGroup group = collect(
        state, [&](std::size_t i) { return before[i].state == state && after[i].state == state; });
    const std::size_t count = group.samples.front().size();
    if (count == 0 || (count < kLeastSamples && count < repetitions)) continue;
    kept += count;
    result.groups.push_back(std::move(group));
  }
  if (2 * kept < repetitions) {
    result.groups = {collect(State::kUnknown, [](std::size_t) { return true; })};
    kept = repetitions;
  }
  result.dropped = static_cast<int>(repetitions - kept);
  std::stable_sort(result.groups.begin(), result.groups.end(),
                   [](const StateGroup& a, const StateGroup& b) {
                     return a.samples.front().size() > b.samples.front().size();
                   });
  return result;
}

}  // namespace kolo::perf
