// Alltoall by pairwise exchange (Thakur, Rabenseifner & Gropp 2005, "Optimization of collective
// communication operations in MPICH", §4.4).
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <span>

namespace kolo {

/// `matrix` is size × size by rows: [i × size + j] elements go from rank i to rank j. kInput: this
/// rank's row, by receiving rank; kOutput: its column, by sending rank. Both contiguous, and other
/// memory each. Any counts, zeros too. A rank sends its row but for its own part.
Schedule alltoall_pairwise(int rank, int size, std::span<const std::uint64_t> matrix,
                           const PipelineOptions& options);

}  // namespace kolo
