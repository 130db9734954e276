// Reduce-scatter in two levels: the ranks of a host sum for their host from each other's windows,
// and the sums of the hosts travel the network to the rank whose part they are.
#pragma once

#include "runtime/collectives/host_routes.h"

namespace kolo {

/// `counts` by rank: the parts into which the sum of all inputs is cut. Any layout of two hosts or
/// more; the output may lie in its place in the input. A host's ranks together send the parts of
/// the other hosts' ranks once, each a share. A part's sum has the order of the hosts from the one
/// after its own on, inside a host that of the ranks: its bits depend on the inputs and the layout
/// alone.
Schedule reduce_scatter_hierarchical(int rank, const HostLayout& layout,
                                     std::span<const std::uint64_t> counts,
                                     const HostsOptions& options);

}  // namespace kolo
