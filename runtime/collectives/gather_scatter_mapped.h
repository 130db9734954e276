// Gather and scatter over memory that the ranks of a host map. The reader of a part copies it from
// the owner's input directly, or from a pipeline slot of the owner's window.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"

#include <cstdint>
#include <span>

namespace kolo {

/// `counts` holds the length of each rank's part, which is its input. The root's output holds all
/// parts in rank order; other ranks have no output. Needs mapped scratch of pipeline slots ×
/// block_elements. Any p and counts. The root's input may lie at its offset in the output.
Schedule gather_mapped(int rank, int size, int root, std::span<const std::uint64_t> counts,
                       const MappedOptions& options);

/// The root's input holds all parts in rank order; other ranks have no input. Each rank's output is
/// its part. Needs the same scratch, and block_elements ≥ size − 1. Any p and counts. The root's
/// output may lie at its offset in the input.
Schedule scatter_mapped(int rank, int size, int root, std::span<const std::uint64_t> counts,
                        const MappedOptions& options);

}  // namespace kolo
