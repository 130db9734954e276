// Repetitions of one problem by several engines in turn, several of an engine in a row: A…A B…B
// C…C, B…B C…C A…A, … A disturbance of the machine then hits all of them. Main thread of every
// rank, with the same calls on all ranks.
#pragma once

#include "tools/perf/barrier.h"
#include "tools/perf/buffer.h"
#include "tools/perf/engine.h"
#include "tools/perf/probe.h"

#include <cstdint>
#include <vector>

namespace kolo::perf {

/// How the ranks' times of a repetition become one sample.
enum class Protocol {
  kKolo,     ///< the mean of what the call took each rank
  kHarness,  ///< from when the last rank began until the last rank ended
};

struct SeriesOptions {
  int iterations = 20;
  int warmup = 5;
  int batch = 1;        ///< operations per sample, back to back; a sample is their mean
  bool check = true;    ///< verify every element, of each operation or of one extra per sample
  bool rewrite = true;  ///< fill this rank's buffers anew before each sample
  Memory memory = Memory::kPrivate;
  Protocol protocol = Protocol::kKolo;
  Barrier* barrier = nullptr;  ///< starts the ranks; null: a small all-reduce of kolo does
  Gpu* gpu = nullptr;          ///< its memory is measured
};

/// What is timed: one engine's operation, in place or not.
struct Variant {
  Engine* engine = nullptr;
  bool in_place = false;
};

struct Series {
  StateGroups states;               ///< microseconds, by variant
  std::vector<std::int64_t> wrong;  ///< by variant: wrong elements over all ranks and repetitions
};

/// Collective.
Series run_series(const Problem& problem, const std::vector<Variant>& variants,
                  const SeriesOptions& options, Probe& probe);

}  // namespace kolo::perf
