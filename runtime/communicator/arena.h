// Arena: where fusion buffers, receive slots and (later) gradient buckets come from, never from
// `new`: here is decided what peers can map, what is registered and what is plain memory. Freed
// blocks are kept for the next operation of that size class; large ones of plain memory for a
// while. Token holder only.
#pragma once

#include "transport/transport.h"

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace kolo {

class DeviceWindow;

enum class MemoryKind : std::uint8_t {
  kHeap,       ///< page-aligned host memory
  kMappable,   ///< Transport::allocate_mappable()
  kDevice,     ///< the accelerator's
  kPinned,     ///< host memory that the accelerator reaches
  kNetworked,  ///< the accelerator's, registered with the transport (Transport::reach_device())
};

class Arena;

/// A block on loan; returns to its arena when destroyed. The arena outlives it.
class ArenaBlock {
 public:
  ArenaBlock();
  ArenaBlock(ArenaBlock&& other) noexcept;
  ArenaBlock& operator=(ArenaBlock&& other) noexcept;
  ~ArenaBlock();

  std::byte* data() const;
  std::size_t size() const;
  /// The transport's region, for a mappable or networked block; else null.
  MemoryRegion* region() const;

  struct Memory;

 private:
  friend class Arena;
  ArenaBlock(Arena& arena, std::unique_ptr<Memory> memory);
  Arena* arena_ = nullptr;
  std::unique_ptr<Memory> memory_;
};

class Arena {
 public:
  using Clock = std::chrono::steady_clock;

  /// Plain memory of a block of this size or more, which nothing has used for so long, is given
  /// back to the system: a job whose operations have become smaller is to have it.
  static constexpr std::size_t kLarge = 1 << 20;
  static constexpr std::chrono::seconds kKeep{10};

  /// Without `devices`, or where they have no accelerator, there are no kDevice, kPinned and
  /// kNetworked.
  explicit Arena(Transport& transport, const DeviceWindow* devices = nullptr);
  ~Arena();

  /// At least `bytes` bytes (rounded up to a power of two of pages); kOutOfMemory names the size.
  Result<ArenaBlock> allocate(std::size_t bytes, MemoryKind kind);

  /// Gives back what was not used for so long; seldom enough to be called all the time.
  void drop_unused(Clock::time_point now);

  /// Bytes held, on loan and kept.
  std::size_t bytes_held() const { return bytes_held_; }

 private:
  friend class ArenaBlock;
  void give_back(std::unique_ptr<ArenaBlock::Memory> memory);
  void drop_kept();  ///< when memory is short: other size classes' blocks

  Transport& transport_;
  const DeviceWindow* devices_;
  std::map<std::pair<MemoryKind, std::size_t>, std::vector<std::unique_ptr<ArenaBlock::Memory>>>
      kept_;
  std::size_t bytes_held_ = 0;
};

}  // namespace kolo
