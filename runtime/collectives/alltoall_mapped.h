// Alltoall over memory that the ranks of a host map. Each rank reads its parts directly from the
// owners' inputs, or from stripes of the owners' pipeline slots.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"

#include <cstdint>
#include <span>

namespace kolo {

/// `counts` as for alltoall_pairwise(). Parts lie in rank order in input and
/// output. Needs mapped scratch of pipeline slots × block_elements, and block_elements ≥ size − 1.
/// Any p and counts; input and output may be scattered and must not overlap.
Schedule alltoall_mapped(int rank, int size, std::span<const std::uint64_t> counts,
                         const MappedOptions& options);

}  // namespace kolo
