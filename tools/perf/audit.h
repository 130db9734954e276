// kolo-perf --audit: kolo's all-reduce as it chooses the algorithm, beside every other algorithm
// that could carry it, by size. Called by main on every rank.
#pragma once

#include "tools/perf/sweep.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace kolo::perf {

struct AuditOptions {
  SweepOptions sweep = {};  ///< the sizes, and how each is measured
  std::vector<Memory> memories = {Memory::kPrivate, Memory::kShared};
  double within = 1.1;  ///< times the best alternative's time, and a larger size's
};

/// Collective. Measures the choice and its alternatives in turn, in place, and prints a line a size
/// on rank 0. Sizes that fail are measured again. Returns the rows, as `--help` documents them.
nlohmann::json run_audit(const AuditOptions& options);

}  // namespace kolo::perf
