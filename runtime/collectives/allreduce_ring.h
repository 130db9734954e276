// Allreduce by a chunk-pipelined ring: reduce-scatter, then allgather (Patarasuk & Yuan 2009,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations").
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

/// Where the running sums live.
enum class Placement : std::uint8_t {
  kInPlace,  ///< in the contiguous output; scratch holds receive slots only
  kPacked,   ///< in scratch, packed from a scattered input and unpacked block by block
};

struct RingOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message
  int blocks_in_flight = 4;                 ///< each block of `size` chunks is a small ring
  Placement placement = Placement::kInPlace;
  /// Every other block runs in the opposite direction, so this rank sends to both neighbours.
  bool bidirectional = false;
};

/// Each rank makes 2(p−1) sends of count/p elements in all; p = 1 is a scaled copy. Any count and
/// p.
Schedule allreduce_ring(int rank, int size, std::uint64_t count, const RingOptions& options);

}  // namespace kolo
