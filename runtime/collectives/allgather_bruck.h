// Allgather of small parts in ⌈log₂ p⌉ rounds (Bruck et al. 1997, "Efficient algorithms for
// all-to-all communications in multiport message-passing systems").
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>
#include <span>

namespace kolo {

/// kInput holds counts[rank] elements, kOutput all ranks' parts in rank order. Either may be
/// scattered; counts may be zero. `in_place`: the input lies at its offset in the output, and
/// kInput is not touched. Scratch: Σ counts elements.
Schedule allgather_bruck(int rank, int size, std::span<const std::uint64_t> counts, bool in_place);

}  // namespace kolo
