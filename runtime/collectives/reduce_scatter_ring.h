// Reduce-scatter by a chunk-pipelined ring: the first half of the ring allreduce (Patarasuk & Yuan
// 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
#pragma once

#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

struct ReduceScatterOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message
  int blocks_in_flight = 4;                 ///< each block, a chunk of each part, is a small ring
  std::span<const int> order = {};          ///< as RingOrder has it
};

/// kInput: Σ counts elements, may be scattered; kOutput: counts[rank] elements, the sum of part
/// `rank`, which may lie in that part of the input. Any counts, zeros too. A rank sends all parts
/// but its own. Scratch: four chunks a block in flight at most.
Schedule reduce_scatter_ring(int rank, int size, std::span<const std::uint64_t> counts,
                             const ReduceScatterOptions& options);

}  // namespace kolo
