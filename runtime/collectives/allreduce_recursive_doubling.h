// Recursive doubling: every rank combines whole vectors with log₂ p other ranks. The .cc describes
// the algorithm and its cost.
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>

namespace kolo {

/// Combines `count` elements of kInput into kOutput on all ranks; the two may be the same memory.
/// Every kReduce has exactly two sources, whole vectors in kScratch, the lower rank's first. So it
/// serves Adasum as well as sums.
Schedule allreduce_recursive_doubling(int rank, int size, std::uint64_t count);

}  // namespace kolo
