// Allgather and broadcast over memory that the ranks of a host map. Each rank reads the other
// ranks' parts directly, or from the pipeline slots of their windows.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"

#include <cstdint>
#include <span>

namespace kolo {

/// `counts` holds the length of each rank's part; parts lie in rank order in every output. Needs
/// mapped scratch of pipeline slots × block_elements. Any p and counts; input and output may be
/// scattered. The input may lie at its offset in the output, on some ranks or on all.
Schedule allgather_mapped(int rank, int size, std::span<const std::uint64_t> counts,
                          const MappedOptions& options);

/// Sends the root's `count` elements to all ranks. Same requirements; the input may be the output.
Schedule broadcast_mapped(int rank, int size, int root, std::uint64_t count,
                          const MappedOptions& options);

}  // namespace kolo
