// Repetitions of one problem by several engines in turn: A B C, B C A, … A disturbance of the
// machine then hits all of them. Main thread of every rank, with the same calls on all ranks.
#pragma once

#include "tools/perf/buffer.h"
#include "tools/perf/engine.h"
#include "tools/perf/probe.h"

#include <cstdint>
#include <vector>

namespace kolo::perf {

struct SeriesOptions {
  int iterations = 20;
  int warmup = 5;
  int batch = 1;        ///< operations per sample, back to back; a sample is their mean
  bool check = true;    ///< verify every element, of each operation or of one extra per sample
  bool rewrite = true;  ///< fill this rank's buffers anew before each sample
  Memory memory = Memory::kPrivate;
  Gpu* gpu = nullptr;  ///< its memory is measured
};

/// What is timed: one engine's operation, in place or not.
struct Variant {
  Engine* engine = nullptr;
  bool in_place = false;
};

struct Series {
  StateGroups states;               ///< microseconds, mean over the ranks, by variant
  std::vector<std::int64_t> wrong;  ///< by variant: wrong elements over all ranks and repetitions
};

/// Collective.
Series run_series(const Problem& problem, const std::vector<Variant>& variants,
                  const SeriesOptions& options, Probe& probe);

}  // namespace kolo::perf
