// Two-level allreduce: reduce-scatter inside each host, rings across the hosts, allgather inside
// each host. The .cc describes the algorithm and its cost.
#pragma once

#include "runtime/collectives/schedule.h"
#include "runtime/topology/host_layout.h"

#include <cstdint>
#include <vector>

namespace kolo {

struct HierarchicalOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message between hosts
  int blocks_in_flight = 4;
  /// Elements of each rank's window, if the ranks of every host have mapped each other's windows.
  /// Then only signals are sent inside a host. At least 64 elements for each block in flight. 0:
  /// messages.
  std::uint64_t mapped_elements = 0;
  /// The network uses kStaging instead of the windows. For windows of device memory: kStaging is
  /// then pinned host memory, or device memory where the network can use it.
  bool staged = false;
  /// Ranks, ascending, that sum and drive the network for their hosts; at least one on each host.
  /// Empty: all ranks do. The same on all ranks.
  std::vector<int> owners = {};
};

/// Sums `count` elements of kInput into kOutput on all ranks. The two may be the same memory and
/// may be scattered. With windows, peers read and write the user's memory directly where it is
/// mapped. Any layout: one host, hosts of one rank, hosts of different sizes, a host's ranks not
/// consecutive. With at most two hosts, an element is summed in the same order wherever it lies.
Schedule allreduce_hierarchical(int rank, const HostLayout& layout, std::uint64_t count,
                                const HierarchicalOptions& options);

}  // namespace kolo
