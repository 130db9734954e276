// Allgather in ⌈log₂ p⌉ rounds by recursive doubling, straight into the output (Thakur,
// Rabenseifner & Gropp 2005, "Optimization of collective communication operations in MPICH", §4.1).
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>
#include <span>

namespace kolo {

/// kInput holds counts[rank] elements, kOutput all ranks' parts in rank order. Both are contiguous.
/// Any p; counts may be zero. `in_place`: the input lies at its offset in the output, and kInput is
/// not touched. No scratch.
Schedule allgather_recursive_doubling(int rank, int size, std::span<const std::uint64_t> counts,
                                      bool in_place);

}  // namespace kolo
