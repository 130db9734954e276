// Gather: every rank sends its part directly to the root.
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

struct GatherOptions {
  PipelineOptions pipeline;
  bool in_place = false;  ///< the root's part lies at its offset already; its kInput is not touched
};

/// kInput holds counts[rank] elements. The root's kOutput holds all parts in rank order; other
/// ranks have no kOutput. Both are contiguous; counts may be zero. Every rank but the root sends
/// its part once.
Schedule gather_linear(int rank, int size, int root, std::span<const std::uint64_t> counts,
                       const GatherOptions& options);

}  // namespace kolo
