// What the tests of DistributedDataParallel compute by rank, and a communication hook that does
// what DistributedDataParallel does without one. Header-only; between kolo::init() and shutdown().
#pragma once

#include <kolo/torch.h>

#include <functional>

namespace kolo::test {

inline double mine() { return rank() + 1.0; }
inline double mean_of_ranks() { return (size() + 1) / 2.0; }  ///< of mine()

/// Starts the average; the result waits for it.
inline std::function<torch::Tensor()> average_bucket(const GradBucket& bucket) {
  TensorWork work =
      allreduce_async_(bucket.buffer, {.op = ReduceOp::kAverage, .name = bucket.name});
  return [work]() mutable { return work.wait(); };
}

}  // namespace kolo::test
