// Memory shared by the processes of a host, of the kernel alone (memfd_create): no file anywhere,
// no limit by /dev/shm, nothing left behind when a process is killed. Address space is reserved
// whole and gets memory page by page, as it is committed. Peers open it through /proc, which needs
// the same user and the same process namespace; where that fails, so does map_shared_region(). A
// forked child writes to pages of its own, and those of its parent that it has not written it reads
// as they are then; of peers' regions it has none.
#pragma once

#include "transport/memory_region.h"

#include <cstddef>
#include <memory>
#include <string_view>

namespace kolo {

/// Address space for `bytes` bytes without memory. kOutOfMemory or kUnsupported where there is
/// none, or none for so many `ranks` that map one another's regions of this size (ulimit -v).
Result<std::unique_ptr<MemoryRegion>> reserve_shared_region(std::size_t bytes, int ranks = 1);

/// Whether a key is one of reserve_shared_region()'s regions.
bool is_shared_region_key(std::string_view key);

/// Maps another process's region. kUnsupported, with the reason, where that is not possible.
Result<std::unique_ptr<PeerMapping>> map_shared_region(std::string_view key);

}  // namespace kolo
