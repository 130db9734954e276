// Two-level broadcast. Slices travel from host to host, each rank of a host forwards one. The ranks
// of a host read the slices from each other's windows.
#pragma once

#include "runtime/collectives/host_routes.h"

namespace kolo {

/// Broadcasts `count` elements of the root's kInput to kOutput on all ranks; the two may be the
/// same memory. Any layout of at least two hosts. Each host receives everything once; its ranks
/// share the work.
Schedule broadcast_hierarchical(int rank, const HostLayout& layout, int root, std::uint64_t count,
                                const HostsOptions& options);

}  // namespace kolo
