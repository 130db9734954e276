// Recursive halving and doubling: as few messages as a tree has, with as few bytes as a ring has.
// See the .cc for how it works and what it costs.
#pragma once

#include "runtime/collectives/schedule.h"

#include <cstdint>

namespace kolo {

/// `count` elements of kInput, their sum in all of kOutput; the two may be the same memory. An
/// element's sum has the same order wherever it lies, on every rank.
Schedule allreduce_halving_doubling(int rank, int size, std::uint64_t count);

}  // namespace kolo
