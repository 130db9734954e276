// Allreduce over two binary trees at once: few messages and full bandwidth for any number of ranks.
// The .cc describes the algorithm and its cost.
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <cstdint>

namespace kolo {

/// Sums `count` elements of kInput into kOutput on all ranks. The two may be the same memory and
/// may be scattered. If `pipeline` allows fewer chunks in flight than fill the trees, as many as
/// fill them are used.
Schedule allreduce_double_tree(int rank, int size, std::uint64_t count,
                               const PipelineOptions& pipeline);

}  // namespace kolo
