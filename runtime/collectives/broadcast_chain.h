// Broadcast by a pipelined chain root → root+1 → … (the van de Geijn pipeline). For large tensors:
// every link carries each byte once, and all links work at the same time.
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

struct ChainOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message
  int chunks_in_flight = 8;                 ///< messages of one direction posted at a time
};

/// The root sends kInput, and copies it to its kOutput if that is different memory. All other ranks
/// receive into kOutput, which is contiguous. Every rank sends count elements, except the last one
/// of the chain.
Schedule broadcast_chain(int rank, int size, int root, std::uint64_t count,
                         const ChainOptions& options);

}  // namespace kolo
