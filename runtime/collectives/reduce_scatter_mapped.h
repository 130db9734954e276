// Reduce-scatter over memory that the ranks of a host map. Each rank sums its part directly from
// all inputs, or from the pipeline slots of their windows.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"

#include <cstdint>
#include <span>

namespace kolo {

/// `counts` holds the lengths of the parts that the sum of all inputs is cut into, by rank. Needs
/// mapped scratch of pipeline slots × block_elements, and block_elements ≥ size − 1. Elements are
/// summed in rank order, so the result's bits depend only on the inputs. Any p and counts; input
/// and output may be scattered. The output may lie at its offset in the input.
Schedule reduce_scatter_mapped(int rank, int size, std::span<const std::uint64_t> counts,
                               const MappedOptions& options);

}  // namespace kolo
