// Arena: the memory of fusion buffers, receive slots and other scratch, which never use `new`. The
// arena decides which memory peers can map, which is registered and which is plain. A returned
// block is kept for the next operation of the same size class; large plain blocks are kept only for
// a while. Progress token holder only.
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
  kHeap,      ///< page-aligned host memory
  kMappable,  ///< Transport::allocate_mappable()
  kDevice,    ///< memory of the accelerator
  kPinned,    ///< host memory that the accelerator can access
  /// Memory of the accelerator, registered with the transport (Transport::reach_device()).
  kNetworked,
};

class Arena;

/// A borrowed block; goes back to its arena when destroyed. The arena outlives it.
class ArenaBlock {
 public:
  ArenaBlock();
  ArenaBlock(ArenaBlock&& other) noexcept;
  ArenaBlock& operator=(ArenaBlock&& other) noexcept;
  ~ArenaBlock();

  std::byte* data() const;
  std::size_t size() const;
  /// The transport's region of a mappable or networked block; otherwise null.
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

  /// A plain block of at least kLarge bytes that was unused for kKeep is returned to the system, so
  /// that a job whose operations have become smaller gets the memory back.
  static constexpr std::size_t kLarge = 1 << 20;
  static constexpr std::chrono::seconds kKeep{10};

  /// Without `devices`, or without an accelerator in it, kDevice, kPinned and kNetworked are
  /// kUnsupported.
  explicit Arena(Transport& transport, const DeviceWindow* devices = nullptr);
  ~Arena();

  /// At least `bytes` bytes, rounded up to a power of two and to at least a page. kOutOfMemory
  /// names the size.
  Result<ArenaBlock> allocate(std::size_t bytes, MemoryKind kind);

  /// Returns large plain blocks that were unused for kKeep to the system. Cheap enough to call in
  /// every cycle.
  void drop_unused(Clock::time_point now);

  /// Bytes held: borrowed and kept blocks.
  std::size_t bytes_held() const { return bytes_held_; }

 private:
  friend class ArenaBlock;
  void give_back(std::unique_ptr<ArenaBlock::Memory> memory);
  void drop_kept();  ///< when memory is short: frees the kept blocks of all size classes

  Transport& transport_;
  const DeviceWindow* devices_;
  std::map<std::pair<MemoryKind, std::size_t>, std::vector<std::unique_ptr<ArenaBlock::Memory>>>
      kept_;
  std::size_t bytes_held_ = 0;
};

}  // namespace kolo
