#include "tools/perf/measure.h"

#include <kolo/kolo.h>

namespace kolo::perf {

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
