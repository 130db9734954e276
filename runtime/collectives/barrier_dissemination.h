// Barrier by dissemination (Hensgen, Finkel & Manber 1988, "Two algorithms for barrier
// synchronization").
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

/// Each rank sends and receives ⌈log₂ p⌉ signals. No memory.
Schedule barrier_dissemination(int rank, int size);

}  // namespace kolo
