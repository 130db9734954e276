// Timing of collective calls: every rank starts together, each repetition is timed by itself, and
// what is reported is the mean over the ranks of each rank's median.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace kolo::perf {

/// Microseconds.
struct Timing {
  double median = 0;
  double low = 0;   ///< 10th percentile
  double high = 0;  ///< 90th percentile
};

inline Timing summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

/// Every rank waits for every other.
void align();

/// The mean over the ranks of each member. Collective.
Timing mean_over_ranks(const Timing& timing);

/// Microseconds that `call` takes once all ranks are aligned.
double time_once(const std::function<void()>& call);

}  // namespace kolo::perf
