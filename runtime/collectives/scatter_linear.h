// Scatter: the root sends each rank its part directly.
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

struct ScatterOptions {
  PipelineOptions pipeline;
  bool in_place = false;  ///< the root's own part stays in its input; its kOutput is not touched
};

/// The root's kInput holds all parts in rank order; other ranks have no kInput. kOutput receives
/// counts[rank] elements. Both are contiguous; counts may be zero. The root sends every part but
/// its own once.
Schedule scatter_linear(int rank, int size, int root, std::span<const std::uint64_t> counts,
                        const ScatterOptions& options);

}  // namespace kolo
