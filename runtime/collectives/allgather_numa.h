// Allgather and broadcast over memory that the ranks of a host map, by NUMA nodes. The .cc
// describes the algorithm and its cost.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"
#include "runtime/topology/host_layout.h"

#include <cstdint>
#include <span>

namespace kolo {

/// `nodes`: which ranks share a NUMA node, with nodes in the place of hosts. `counts` as in
/// allgather_mapped(). Needs mapped scratch of pipeline slots × block_elements, of which there are
/// at least `size`; MappedOptions::direct is ignored. Any number of ranks on a node and any counts;
/// input and output may be scattered. The input may lie at its offset in the output.
Schedule allgather_numa(int rank, const HostLayout& nodes, std::span<const std::uint64_t> counts,
                        const MappedOptions& options);

/// Sends the root's `count` elements to all ranks. Same requirements; the input may be the output.
Schedule broadcast_numa(int rank, const HostLayout& nodes, int root, std::uint64_t count,
                        const MappedOptions& options);

}  // namespace kolo
