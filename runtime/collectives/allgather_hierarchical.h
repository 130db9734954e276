// Two-level allgather. The data of other hosts crosses the network once. The ranks of a host then
// read it from each other's windows.
#pragma once

#include "runtime/collectives/host_routes.h"

namespace kolo {

/// `counts` holds the length of each rank's part; parts lie in rank order in every output. Any
/// layout of at least two hosts; the input may lie at its offset in the output. The ranks of a host
/// share the work of receiving the other hosts' parts.
Schedule allgather_hierarchical(int rank, const HostLayout& layout,
                                std::span<const std::uint64_t> counts, const HostsOptions& options);

}  // namespace kolo
