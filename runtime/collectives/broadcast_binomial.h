// Broadcast of small tensors in ⌈log₂ p⌉ rounds along a binomial tree (Thakur, Rabenseifner & Gropp
// 2005, "Optimization of collective communication operations in MPICH", §4.2).
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

/// The root sends kInput, and copies it to its kOutput if that is different memory. All other ranks
/// receive into kOutput, which is contiguous. Any count and p; each message is the whole tensor.
Schedule broadcast_binomial(int rank, int size, int root, std::uint64_t count);

}  // namespace kolo
