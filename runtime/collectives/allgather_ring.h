// Allgather by a chunk-pipelined ring (Thakur, Rabenseifner & Gropp 2005, "Optimization of
// collective communication operations in MPICH", §4.1).
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

struct AllgatherOptions {
  PipelineOptions pipeline;
  bool in_place = false;  ///< the input lies at its offset in the output; kInput is not touched
  std::span<const int> order = {};  ///< see RingOrder
};

/// kInput holds counts[rank] elements, kOutput all ranks' parts in rank order. Both are contiguous;
/// counts may be zero. A rank sends all parts except that of the next rank in the ring.
Schedule allgather_ring(int rank, int size, std::span<const std::uint64_t> counts,
                        const AllgatherOptions& options);

}  // namespace kolo
