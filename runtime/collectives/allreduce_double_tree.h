// Allreduce over two binary trees at once: few messages and full bandwidth, for any number of
// ranks. See the .cc for how it works and what it costs.
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <cstdint>

namespace kolo {

/// `count` elements of kInput, their sum in all of kOutput; the two may be the same memory, and
/// scattered. Chunks in flight are as many as fill the trees, if `pipeline` says fewer.
Schedule allreduce_double_tree(int rank, int size, std::uint64_t count,
                               const PipelineOptions& pipeline);

}  // namespace kolo
