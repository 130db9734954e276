// Broadcast by a pipelined chain root → root+1 → … (the van de Geijn pipeline): for large tensors
// every link carries each byte once, and all links at the same time.
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

struct ChainOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message
  int chunks_in_flight = 8;                 ///< messages of one direction posted at a time
};

/// The root sends kInput (kept in kOutput too, if that is other memory); all others receive into
/// kOutput, which is contiguous. Sends of a rank: count elements, but for the chain's last rank.
Schedule broadcast_chain(int rank, int size, int root, std::uint64_t count,
                         const ChainOptions& options);

}  // namespace kolo
