// Two-level reduce-scatter. The ranks of a host sum their host's inputs from each other's windows.
// The sums travel over the network to the ranks that own the parts.
#pragma once

#include "runtime/collectives/host_routes.h"

namespace kolo {

/// `counts` holds the lengths of the parts that the sum of all inputs is cut into, by rank. Any
/// layout of at least two hosts; the output may lie at its offset in the input. The ranks of a host
/// together send the parts of the other hosts' ranks once and share this work. A part's sum starts
/// with the host after its owner's; inside a host the order is that of the ranks. So the result's
/// bits depend only on the inputs and the layout.
Schedule reduce_scatter_hierarchical(int rank, const HostLayout& layout,
                                     std::span<const std::uint64_t> counts,
                                     const HostsOptions& options);

}  // namespace kolo
