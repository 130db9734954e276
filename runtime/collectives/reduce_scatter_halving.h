// Reduce-scatter in ⌈log₂ p⌉ rounds by recursive halving (Thakur, Rabenseifner & Gropp 2005,
// "Optimization of collective communication operations in MPICH", §4.4).
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>
#include <span>

namespace kolo {

/// kInput holds Σ counts elements and may be scattered. kOutput receives counts[rank] elements, the
/// sum of part `rank`; it is contiguous and may lie at this part of the input. Any p; counts may be
/// zero. Scratch: about 2 · Σ counts, and Σ counts more if a rank is folded in.
Schedule reduce_scatter_halving(int rank, int size, std::span<const std::uint64_t> counts);

}  // namespace kolo
