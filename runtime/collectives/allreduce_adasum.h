// Allreduce by Adasum (Maleki et al. 2021, "Scaling distributed training with adaptive summation"):
// recursive doubling over whole vectors.
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

/// Scratch: 2 × count. Every kReduce has two contiguous sources of the whole length, the lower
/// rank's vector first, and equal operands on both partners, so all ranks end with equal bits.
/// Any p; p = 1 is a scaled copy. Input and output may be scattered and may be the same memory.
Schedule allreduce_adasum(int rank, int size, std::uint64_t count);

}  // namespace kolo
