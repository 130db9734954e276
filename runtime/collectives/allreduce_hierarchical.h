// Allreduce in two levels: reduce-scatter inside each host, rings across the hosts, allgather
// inside each host. See the .cc for how it works and what it costs.
#pragma once

#include "runtime/collectives/host_layout.h"
#include "runtime/collectives/schedule.h"

#include <cstdint>
#include <vector>

namespace kolo {

struct HierarchicalOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message between hosts
  int blocks_in_flight = 4;
  /// What each rank's window holds, if the ranks of every host have mapped each other's: inside a
  /// host nothing but notices is sent then. At least 64 elements a block in flight. 0: messages.
  std::uint64_t mapped_elements = 0;
  /// What goes through the network lies in kStaging, apart from the windows: their memory is a
  /// device's, and staging memory is pinned memory of the host, or of the device where the network
  /// takes that.
  bool staged = false;
  /// Ranks, ascending, that sum and drive the network for their hosts, one on each host at least.
  /// Empty: all do. Alike on all ranks.
  std::vector<int> owners = {};
};

/// `count` elements of kInput, their sum in all of kOutput; the two may be the same memory, and
/// scattered. With windows, peers read and write the user's memory itself where it is mapped. Any
/// layout: one host, hosts of one rank, unequal ones, ranks of a host that are no neighbours.
/// Hosts up to two: an element's sum has the same order wherever it lies.
Schedule allreduce_hierarchical(int rank, const HostLayout& layout, std::uint64_t count,
                                const HierarchicalOptions& options);

}  // namespace kolo
