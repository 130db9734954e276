#include "tools/perf/measure.h"

#include <kolo/kolo.h>

#include <unistd.h>

namespace kolo::perf {

nlohmann::json to_json(const Statistics& microseconds) {
  return {{"time_us", microseconds.p50},
          {"p10_us", microseconds.p10},
          {"p50_us", microseconds.p50},
          {"p90_us", microseconds.p90},
          {"p99_us", microseconds.p99}};
}

bool ranks_have_cores() {
  std::int64_t crowded = local_size() > sysconf(_SC_NPROCESSORS_ONLN) ? 1 : 0;
  allreduce_ordered(&crowded, &crowded, 1, DataType::kInt64, ReduceOp::kMax);
  return crowded == 0;
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

std::vector<double> means_over_ranks(const std::vector<Span>& spans) {
  std::vector<double> samples;
  samples.reserve(spans.size());
  for (const Span& span : spans)
    samples.push_back(static_cast<double>(span.end - span.begin) / 1e3);
  average_over_ranks(samples);
  return samples;
}

std::vector<double> from_last_begin_to_last_end(const std::vector<Span>& spans) {
  std::vector<std::int64_t> last;
  for (const Span& span : spans) last.insert(last.end(), {span.begin, span.end});
  allreduce_ordered(last.data(), last.data(), static_cast<std::int64_t>(last.size()),
                    DataType::kInt64, ReduceOp::kMax);
  std::vector<double> samples;
  for (std::size_t i = 0; i < last.size(); i += 2)
    samples.push_back(static_cast<double>(last[i + 1] - last[i]) / 1e3);
  return samples;
}

}  // namespace kolo::perf
