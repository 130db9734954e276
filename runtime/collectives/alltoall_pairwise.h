// Alltoall by pairwise exchange (Thakur, Rabenseifner & Gropp 2005, "Optimization of collective
// communication operations in MPICH", §4.4).
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

/// `counts` is size × size in row-major order: [i × size + j] elements go from rank i to rank j. Or
/// it is one number, and so many elements go from each rank to each.
/// kInput is this rank's row by receiving rank, kOutput its column by sending rank. Both are
/// contiguous and do not overlap. Counts may be zero. A rank sends its row except its own part.
Schedule alltoall_pairwise(int rank, int size, std::span<const std::uint64_t> counts,
                           const PipelineOptions& options);

}  // namespace kolo
