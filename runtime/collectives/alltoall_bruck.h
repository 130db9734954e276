// Alltoall of small parts in ⌈log₂ p⌉ rounds (Bruck et al. 1997, "Efficient algorithms for
// all-to-all communications in multiport message-passing systems").
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>
#include <span>

namespace kolo {

/// Arguments as for alltoall_pairwise(). Parts travel through other ranks, so a rank sends about
/// ⌈log₂ p⌉ / 2 times its own elements. Scratch: everything that it sends and receives.
Schedule alltoall_bruck(int rank, int size, std::span<const std::uint64_t> counts);

}  // namespace kolo
