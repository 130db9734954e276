// Gather: every rank sends its part straight to the root.
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

struct GatherOptions {
  PipelineOptions pipeline;
  bool in_place = false;  ///< the root's own part is in its place; its kInput is not touched
};

/// kInput: counts[rank] elements; the root's kOutput: all parts in order of rank; the others have
/// none. Both contiguous. Any counts, zeros too. Every rank but the root sends its part once.
Schedule gather_linear(int rank, int size, int root, std::span<const std::uint64_t> counts,
                       const GatherOptions& options);

}  // namespace kolo
