// The sweep over message sizes for one or more collectives, types and operations, with the columns
// of nccl-tests. Called by main on every rank.
#pragma once

#include "tools/perf/engine.h"
#include "tools/perf/series.h"

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kolo::perf {

struct SweepOptions {
  std::vector<Collective> collectives = {Collective::kAllreduce};
  std::vector<DataType> types = {DataType::kFloat32};
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  std::vector<int> roots = {0};
  std::size_t min_bytes = 8;
  std::size_t max_bytes = 64 << 20;
  double factor = 2;
  std::size_t increment = 0;  ///< bytes; 0: multiply by the factor
  SeriesOptions series = {};
  Submission submission = Submission::kInOrder;
  double far_ns = 120;       ///< the probe's limit; 0: no probe
  bool percentiles = false;  ///< in the table; the report always has them
};

/// The problem in each size of the options.
std::vector<Problem> sizes_of(const SweepOptions& options, const Problem& problem);

/// Collective. Prints the table on rank 0 and returns its rows, as `--help` documents them. The
/// first engine is kolo; the others are compared with it.
nlohmann::json run_sweep(const SweepOptions& options,
                         const std::vector<std::unique_ptr<Engine>>& engines);

/// Whether any row has wrong elements.
bool has_wrong(const nlohmann::json& rows);

}  // namespace kolo::perf
