// Recursive doubling: every rank combines whole vectors with log₂ p others. See the .cc for how it
// works and what it costs.
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>

namespace kolo {

/// `count` elements of kInput, the result in all of kOutput; the two may be the same memory. Every
/// kReduce has exactly two whole vectors in kScratch for sources, the lower rank's first, so that
/// it serves Adasum as well as sums.
Schedule allreduce_recursive_doubling(int rank, int size, std::uint64_t count);

}  // namespace kolo
