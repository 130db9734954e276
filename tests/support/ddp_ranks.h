// Values by rank for the tests of DistributedDataParallel, and a communication hook that does what
// DistributedDataParallel does without a hook. Header-only; between kolo::init() and shutdown().
#pragma once

#include <kolo/torch.h>

#include <functional>

namespace kolo::test {

inline double mine() { return rank() + 1.0; }
inline double mean_of_ranks() { return (size() + 1) / 2.0; }  ///< mean of mine() over the ranks

/// Starts the average; calling the result waits for it.
inline std::function<torch::Tensor()> average_bucket(const GradBucket& bucket) {
  TensorWork work =
      allreduce_async_(bucket.buffer, {.op = ReduceOp::kAverage, .name = bucket.name});
  return [work]() mutable { return work.wait(); };
}

}  // namespace kolo::test
