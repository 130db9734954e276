// Reduce-scatter over memory that the ranks of a host map: each rank sums its part straight from
// all inputs, or from the lanes of their windows.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"

#include <cstdint>
#include <span>

namespace kolo {

/// `counts` by rank: the parts into which the sum of all inputs is cut. Needs mapped scratch of
/// lanes × block_elements, and block_elements ≥ size − 1. The sum's order is that of the ranks, so
/// its bits depend on the inputs alone. Any p and counts; input and output may be scattered, and
/// the output may lie in its place in the input.
Schedule reduce_scatter_mapped(int rank, int size, std::span<const std::uint64_t> counts,
                               const MappedOptions& options);

}  // namespace kolo
