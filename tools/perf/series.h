// Repetitions of one problem by several engines in turn: A B C, B C A, … so that whatever the
// machine does meanwhile does it to all of them. Main thread of every rank, all alike.
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
  int batch = 1;        ///< operations a sample, back to back; a sample is their mean
  bool check = true;    ///< verify every element: each operation's, or one more's a sample
  bool rewrite = true;  ///< each sample starts from buffers that this rank has just written
  Memory memory = Memory::kPrivate;
  Gpu* gpu = nullptr;  ///< what is measured on is its memory
};

/// What is timed: one engine's operation, in one of its two forms.
struct Variant {
  Engine* engine = nullptr;
  bool in_place = false;
};

struct Series {
  StateGroups states;               ///< microseconds, mean over the ranks, by variant
  std::vector<std::int64_t> wrong;  ///< by variant: elements over all ranks and repetitions
};

/// Collective.
Series run_series(const Problem& problem, const std::vector<Variant>& variants,
                  const SeriesOptions& options, Probe& probe);

}  // namespace kolo::perf
