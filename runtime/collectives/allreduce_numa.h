// Allreduce over memory that the ranks of a host map, in two levels: inside each NUMA node, then
// between nodes. The .cc describes the algorithm and its cost.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"
#include "runtime/collectives/schedule.h"
#include "runtime/topology/host_layout.h"

#include <cstdint>

namespace kolo {

/// `nodes`: which ranks share a NUMA node, with nodes in the place of hosts. Needs mapped scratch
/// of at most pipeline slots × block_elements. MappedOptions::direct is ignored; on a node without
/// any of the `owners`, all ranks sum. The sums of the nodes lie in mapped scratch, so the type of
/// partial sums must be that of the elements. They are added in order of the nodes' lowest ranks,
/// each summed in order of rank, whatever the blocks. Any count, and any number of ranks on a node;
/// input and output may be scattered and may be the same memory.
Schedule allreduce_numa(int rank, const HostLayout& nodes, std::uint64_t count,
                        const MappedOptions& options);

}  // namespace kolo
