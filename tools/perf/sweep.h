// The sweep over message sizes, in the manner and with the columns of nccl-tests' all_reduce_perf.
#pragma once

#include <kolo/types.h>

#include <cstddef>
#include <nlohmann/json.hpp>

namespace kolo::perf {

enum class ApiDoor { kOrdered, kNamed };

struct SweepOptions {
  std::size_t min_bytes = 8;
  std::size_t max_bytes = 64 << 20;
  double factor = 2;
  int iterations = 20;
  int warmup = 5;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool check = true;
  ApiDoor door = ApiDoor::kOrdered;
};

/// Collective. Prints the table on rank 0 and returns its rows; "wrong" counts elements over all
/// ranks that differ from the exact result.
nlohmann::json run_sweep(const SweepOptions& options);

}  // namespace kolo::perf
