// Memory shared by the processes of a host, without a file (memfd_create): /dev/shm does not limit
// it, and nothing is left behind when a process is killed. The whole address space is reserved at
// once; pages get memory when they are committed. Peers open it through /proc, which needs the same
// user and the same process namespace; otherwise map_shared_region() fails. A forked child writes
// to its own pages. Pages that it has not written show the parent's current content. It has no
// peers' regions.
#pragma once

#include "transport/memory_region.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

namespace kolo {

/// Reserves address space for `bytes` bytes, without memory. kOutOfMemory or kUnsupported if there
/// is none, or not enough for `ranks` ranks that map each other's regions of this size (ulimit -v).
Result<std::unique_ptr<MemoryRegion>> reserve_shared_region(std::size_t bytes, int ranks = 1);

/// Maps another process's region. kUnsupported, with the reason, if that is not possible.
Result<std::unique_ptr<PeerMapping>> map_shared_region(std::string_view key);

/// How ranks of a host reserve memory that the others map. Ranks that are threads of a test take
/// their transport's memory instead, so that the sanitizers see who writes where.
struct ReservedMemory {
  std::function<Result<std::unique_ptr<MemoryRegion>>(std::size_t bytes, int ranks)> reserve =
      reserve_shared_region;
  std::function<Result<std::unique_ptr<PeerMapping>>(int peer, std::string_view key)> map =
      [](int /*peer*/, std::string_view key) { return map_shared_region(key); };
};

}  // namespace kolo
