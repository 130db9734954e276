// Repetitions of one problem by several engines in turn: A B C, B C A, … so that whatever the
// machine does meanwhile does it to all of them. Main thread of every rank, all alike.
#pragma once

#include "tools/perf/engine.h"
#include "tools/perf/measure.h"
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
};

/// What is timed: one engine's operation, in one of its two forms.
struct Variant {
  Engine* engine = nullptr;
  bool in_place = false;
};

/// The samples that were taken in one state of the machine.
struct StateGroup {
  State state = State::kUnknown;
  double probe_ns = 0;  ///< mean of the readings around these samples
  /// Microseconds, mean over the ranks; by variant, in the order of the repetitions. The n-th of
  /// each were taken together.
  std::vector<std::vector<double>> samples;
};

struct Series {
  std::vector<StateGroup> groups;   ///< the largest first
  std::vector<std::int64_t> wrong;  ///< by variant: elements over all ranks and repetitions
  int dropped = 0;                  ///< repetitions during which the state changed
};

/// Collective. Where the state changed during most repetitions, there is one group of all of them,
/// with state kUnknown.
Series run_series(const Problem& problem, const std::vector<Variant>& variants,
                  const SeriesOptions& options, Probe& probe);

/// Of repetition by repetition: numerator / denominator.
Statistics ratios(const std::vector<double>& numerator, const std::vector<double>& denominator);

}  // namespace kolo::perf
