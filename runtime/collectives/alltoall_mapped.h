// Alltoall over memory that the ranks of a host map: each rank reads what is meant for it where it
// lies, or from a stripe of the owner's lanes.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"

#include <cstdint>
#include <span>

namespace kolo {

/// `matrix[i × size + j]` elements go from rank i to rank j; both sides lay parts end to end in
/// order of rank. Needs mapped scratch of lanes × block_elements, and block_elements ≥ size − 1.
/// Any p and counts; input and output may be scattered, and must not overlap.
Schedule alltoall_mapped(int rank, int size, std::span<const std::uint64_t> matrix,
                         const MappedOptions& options);

}  // namespace kolo
