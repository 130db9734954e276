// One-pass allreduce over memory that the ranks of a host map. Each rank sums its slice directly
// from all scratches and writes the result directly into all of them. (This is the "two-shot"
// allreduce of shared-memory and NVLink systems, pipelined by blocks.)
#pragma once

#include "runtime/collectives/schedule.h"

#include <vector>

namespace kolo {

struct MappedOptions {
  std::uint64_t block_elements = 128 << 10;  ///< all slices of a block: one pipeline slot
  int pipeline_slots = 4;                    ///< blocks in flight
  /// All-reduce: the other ranks have mapped both the input and the output of this rank, so no rank
  /// needs its scratch. All its blocks are in flight at once. Allgather: they have mapped the
  /// input, so this rank packs nothing. Ranks may differ in this option.
  bool direct = false;
  /// Ranks, ascending, that sum; each sums an equal share for all ranks. Empty: all ranks sum. The
  /// same on all ranks.
  std::vector<int> owners = {};
};

/// Needs mapped scratch of at most pipeline slots × block_elements. Elements are summed in rank
/// order, whatever the blocks, so the result's bits depend only on the inputs. p = 1 is a scaled
/// copy. Any count and p; input and output may be scattered and may be the same memory.
Schedule allreduce_mapped(int rank, int size, std::uint64_t count, const MappedOptions& options);

}  // namespace kolo
