// Reduce-scatter by a chunk-pipelined ring: the first half of the ring allreduce (Patarasuk & Yuan
// 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
#pragma once

#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

struct ReduceScatterOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message
  int blocks_in_flight = 4;                 ///< each block, a chunk of each part, is a small ring
  std::span<const int> order = {};          ///< see RingOrder
};

/// kInput holds Σ counts elements and may be scattered. kOutput receives counts[rank] elements, the
/// sum of part `rank`, and may lie at this part of the input. Counts may be zero. A rank sends all
/// parts except its own. Scratch: at most four chunks for each block in flight.
Schedule reduce_scatter_ring(int rank, int size, std::span<const std::uint64_t> counts,
                             const ReduceScatterOptions& options);

}  // namespace kolo
