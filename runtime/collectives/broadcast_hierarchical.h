// Broadcast in two levels: slices travel from host to host, one a rank, and the ranks of a host
// read them from each other's windows.
#pragma once

#include "runtime/collectives/host_routes.h"

namespace kolo {

/// `count` elements of the root's kInput, in all of kOutput; the two may be the same memory. Any
/// layout of two hosts or more. Each host receives everything once, its ranks a share each.
Schedule broadcast_hierarchical(int rank, const HostLayout& layout, int root, std::uint64_t count,
                                const HostsOptions& options);

}  // namespace kolo
