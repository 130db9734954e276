// Allgather and broadcast over memory that the ranks of a host map: each rank reads the others'
// parts where they lie, or from the lanes of their windows.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"

#include <cstdint>
#include <span>

namespace kolo {

/// `counts` by rank, whose parts come end to end in every output. Needs mapped scratch of lanes ×
/// block_elements. Any p and counts; input and output may be scattered, and the input may lie in
/// its place in the output, on some ranks or on all.
Schedule allgather_mapped(int rank, int size, std::span<const std::uint64_t> counts,
                          const MappedOptions& options);

/// The root's `count` elements to all. As above; the input may be the output.
Schedule broadcast_mapped(int rank, int size, int root, std::uint64_t count,
                          const MappedOptions& options);

}  // namespace kolo
