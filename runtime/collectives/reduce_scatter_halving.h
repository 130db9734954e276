// Reduce-scatter in ⌈log₂ p⌉ rounds by recursive halving (Thakur, Rabenseifner & Gropp 2005,
// "Optimization of collective communication operations in MPICH", §4.4).
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>
#include <span>

namespace kolo {

/// kInput: Σ counts elements, may be scattered; kOutput: counts[rank] elements, the sum of part
/// `rank`, contiguous; it may lie in that part of the input. Any counts, zeros too, and any p.
/// Scratch: about 2 · Σ counts, and once more where a rank is folded in.
Schedule reduce_scatter_halving(int rank, int size, std::span<const std::uint64_t> counts);

}  // namespace kolo
