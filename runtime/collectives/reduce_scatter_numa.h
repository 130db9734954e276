// Reduce-scatter over memory that the ranks of a host map, by NUMA nodes. The .cc describes the
// algorithm and its cost.
#pragma once

#include "runtime/collectives/allreduce_mapped.h"
#include "runtime/topology/host_layout.h"

#include <cstdint>
#include <span>

namespace kolo {

/// `nodes`: which ranks share a NUMA node, with nodes in the place of hosts. `counts` as in
/// reduce_scatter_mapped(). Needs mapped scratch of pipeline slots × block_elements, of which there
/// are at least `size`; MappedOptions::direct is ignored. The sums of the nodes lie there, so the
/// type of partial sums must be that of the elements. Any number of ranks on a node and any counts;
/// input and output may be scattered. The output may lie at its offset in the input.
Schedule reduce_scatter_numa(int rank, const HostLayout& nodes,
                             std::span<const std::uint64_t> counts, const MappedOptions& options);

}  // namespace kolo
