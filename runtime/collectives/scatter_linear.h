// Scatter: the root sends every rank its part straight.
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

struct ScatterOptions {
  PipelineOptions pipeline;
  bool in_place = false;  ///< the root's own part stays in its input; its kOutput is not touched
};

/// The root's kInput: all parts in order of rank, the others have none; kOutput: counts[rank]
/// elements. Both contiguous. Any counts, zeros too. The root sends every part but its own once.
Schedule scatter_linear(int rank, int size, int root, std::span<const std::uint64_t> counts,
                        const ScatterOptions& options);

}  // namespace kolo
