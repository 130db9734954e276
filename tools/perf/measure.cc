#include "tools/perf/measure.h"

#include <kolo/kolo.h>

namespace kolo::perf {

void align() {
  float token = 0;
  allreduce_ordered(&token, &token, 1, DataType::kFloat32, ReduceOp::kSum);
}

Timing mean_over_ranks(const Timing& timing) {
  double values[] = {timing.median, timing.low, timing.high};
  allreduce_ordered(values, values, 3, DataType::kFloat64, ReduceOp::kAverage);
  return {values[0], values[1], values[2]};
}

double time_once(const std::function<void()>& call) {
  align();
  const auto begin = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count();
}

}  // namespace kolo::perf
