// Allgather in two levels: what other hosts have comes over the network once, and the ranks of a
// host read it from each other's windows.
#pragma once

#include "runtime/collectives/host_routes.h"

namespace kolo {

/// `counts` by rank, the lengths of the parts, which follow each other in every output. Any layout
/// of two hosts or more; the input may lie in its place in the output. A host's ranks together
/// receive what the other hosts' have, each a share.
Schedule allgather_hierarchical(int rank, const HostLayout& layout,
                                std::span<const std::uint64_t> counts, const HostsOptions& options);

}  // namespace kolo
