// Recursive halving and doubling: as few messages as a tree, with as few bytes as a ring. The .cc
// describes the algorithm and its cost.
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>

namespace kolo {

/// Sums `count` elements of kInput into kOutput on all ranks; the two may be the same memory. All
/// ranks sum an element in the same order, wherever it lies in the vector.
Schedule allreduce_halving_doubling(int rank, int size, std::uint64_t count);

}  // namespace kolo
