#include "tools/perf/measure.h"

#include <kolo/kolo.h>

#include <algorithm>

namespace kolo::perf {

Statistics statistics_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  return {at(0.1), at(0.5), at(0.9), at(0.99)};
}

nlohmann::json to_json(const Statistics& microseconds) {
  return {{"time_us", microseconds.p50},
          {"p10_us", microseconds.p10},
          {"p50_us", microseconds.p50},
          {"p90_us", microseconds.p90},
          {"p99_us", microseconds.p99}};
}

void align() {
  float token = 0;
  allreduce_ordered(&token, &token, 1, DataType::kFloat32, ReduceOp::kSum);
}

void average_over_ranks(std::vector<double>& samples) {
  if (samples.empty()) return;
  allreduce_ordered(samples.data(), samples.data(), static_cast<std::int64_t>(samples.size()),
                    DataType::kFloat64, ReduceOp::kAverage);
}

}  // namespace kolo::perf
