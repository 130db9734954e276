// SharedArena: host memory for users and for gradient buckets. All ranks of the host have mapped
// it, so collectives on it need no copies. It is a part of this rank's window, allocated in whole
// pages. An allocation gets physical memory when it is made, and returns it when it is freed. Any
// thread.
#pragma once

#include "runtime/memory/free_ranges.h"
#include "transport/memory_region.h"

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>

namespace kolo {

class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  /// The part of `region` from offset `begin` to its end; both are whole pages.
  SharedArena(std::shared_ptr<MemoryRegion> region, std::size_t begin);

  /// Zeroed memory, aligned to pages. The pointer keeps the arena alive, so it may outlive the
  /// runtime. kOutOfMemory names the size and how much is in use.
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes);

  /// Offset of the memory in the window; nothing if it does not lie in this arena as a whole.
  std::optional<std::size_t> offset_of(const std::byte* data, std::size_t bytes) const;

  /// Bytes of the whole arena.
  std::size_t capacity() const { return region_->bytes().size() - begin_; }
  /// Bytes in use.
  std::size_t bytes_used() const { return free_.used(); }

 private:
  const std::shared_ptr<MemoryRegion> region_;
  const std::size_t begin_;  ///< offset of the first page
  const pid_t owner_;        ///< a forked child has the parent's mapping and must not free it
  FreeRanges free_;
};

}  // namespace kolo
