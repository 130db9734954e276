// SharedArena: memory for users and for gradient buckets that all ranks of the host have mapped, so
// that collectives on it copy nothing. A part of this rank's window, handed out in whole pages; an
// allocation gets real memory when it is made and gives it back when it is freed. Any thread.
#pragma once

#include "runtime/communicator/free_ranges.h"
#include "transport/memory_region.h"

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>

namespace kolo {

class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  /// The part of `region` from `begin` on; both are whole pages.
  SharedArena(std::shared_ptr<MemoryRegion> region, std::size_t begin);

  /// Zeroed, aligned to pages. Whoever holds it keeps the arena alive, so it may outlive the
  /// runtime. kOutOfMemory names the size and what is left.
  Result<std::shared_ptr<std::byte>> allocate(std::size_t bytes);

  /// Where memory lies within the window; nothing if it does not lie in this arena as a whole.
  std::optional<std::size_t> offset_of(const std::byte* data, std::size_t bytes) const;

  /// Bytes that it can hand out in all.
  std::size_t capacity() const { return region_->bytes().size() - begin_; }
  /// Bytes that are handed out.
  std::size_t bytes_used() const { return free_.used(); }

 private:
  const std::shared_ptr<MemoryRegion> region_;
  const std::size_t begin_;  ///< a whole page, as all that it hands out
  const pid_t owner_;        ///< a forked child has the parent's memory, and must not free it
  FreeRanges free_;
};

}  // namespace kolo
