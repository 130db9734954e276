// Allgather of small parts in ⌈log₂ p⌉ rounds (Bruck et al. 1997, "Efficient algorithms for
// all-to-all communications in multiport message-passing systems").
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>
#include <span>

namespace kolo {

/// kInput: counts[rank] elements; kOutput: all ranks' parts in order of rank. Either may be
/// scattered. Any counts, zeros too. `in_place`: the input is in its place in the output, and
/// kInput is not touched. Scratch: Σ counts.
Schedule allgather_bruck(int rank, int size, std::span<const std::uint64_t> counts, bool in_place);

}  // namespace kolo
