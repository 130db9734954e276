// Alltoall by pairwise exchange (Thakur, Rabenseifner & Gropp 2005, "Optimization of collective
// communication operations in MPICH", §4.4).
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

/// `matrix` is size × size in row-major order: [i × size + j] elements go from rank i to rank j.
/// kInput is this rank's row by receiving rank, kOutput its column by sending rank. Both are
/// contiguous and do not overlap. Counts may be zero. A rank sends its row except its own part.
Schedule alltoall_pairwise(int rank, int size, std::span<const std::uint64_t> matrix,
                           const PipelineOptions& options);

}  // namespace kolo
