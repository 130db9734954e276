// Broadcast down two binary trees, each for half of the tensor, pipelined (Sanders, Speck & Träff
// 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and scan").
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

#include <span>
#include <vector>

namespace kolo {

/// The ranks lie in chains, for instance one for each host. The trees connect the chains' first
/// ranks; each chain passes on what its first rank receives. The root is the first rank of the
/// first chain. It sends kInput, and copies it to its kOutput if that is different memory. All
/// other ranks receive into kOutput, which is contiguous. No rank sends more than count elements to
/// other chains. Any count.
Schedule broadcast_double_tree(int rank, std::span<const std::vector<int>> chains,
                               std::uint64_t count, const PipelineOptions& options);

}  // namespace kolo
