// Allreduce in one pass over memory that the ranks of a host map: each rank sums its slice straight
// from all scratches and writes the result straight into all of them (the "two-shot" allreduce of
// shared-memory and NVLink systems, pipelined by blocks).
#pragma once

#include "runtime/collectives/schedule.h"

#include <vector>

namespace kolo {

struct MappedOptions {
  std::uint64_t block_elements = 128 << 10;  ///< of all slices together; one lane of the scratch
  int lanes = 4;                             ///< blocks in flight
  /// This rank's input and output both are memory that the others have mapped, so that nobody needs
  /// its scratch: all its blocks are in flight at once. The ranks may differ in it.
  bool direct = false;
  /// Ranks, ascending, that sum, each an equal share; the others' memory is summed by them. Empty:
  /// all do. Alike on all ranks.
  std::vector<int> owners = {};
};

/// Needs mapped scratch of lanes × block_elements at most. The sum's order is that of the ranks,
/// whatever the blocks, so its bits depend on the inputs alone. p = 1 is a scaled copy. Any count
/// and p; input and output may be scattered and may be the same memory.
Schedule allreduce_mapped(int rank, int size, std::uint64_t count, const MappedOptions& options);

}  // namespace kolo
