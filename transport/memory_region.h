// Memory that the transport knows: registered for sending without staging, or allocated so that
// peers can map it. Owned by unique_ptr; the transport outlives it. Token holder only, but for
// commit() and discard(), which any thread may call on ranges of its own.
#pragma once

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kolo {

/// Whose memory it is: UCX is told always, for finding it out takes the driver's lock.
enum class MemoryType : std::uint8_t { kHost, kCuda };

/// Memory that this rank registered or allocated through its transport.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::span<std::byte> bytes() const = 0;
  virtual MemoryType type() const { return MemoryType::kHost; }
  /// What a peer passes to Transport::map_peer(). Opaque.
  virtual std::string key() const = 0;

  /// Of a region that was only reserved: gets memory for a range of whole pages, so that nobody is
  /// killed for touching it. kOutOfMemory if there is none, and then none of it has. Others have
  /// all of theirs.
  virtual Status commit(std::size_t /*offset*/, std::size_t /*bytes*/) { return {}; }
  /// Gives such a range back; its content is lost, and it reads as zeros once committed again.
  virtual void discard(std::size_t /*offset*/, std::size_t /*bytes*/) {}
};

/// Of what lies in `memory`; null: in memory of the host that is not registered.
inline MemoryType type_of(const MemoryRegion* memory) {
  return memory == nullptr ? MemoryType::kHost : memory->type();
}

/// A peer's region in this process's address space. The peer must keep the region meanwhile.
class PeerMapping {
 public:
  virtual ~PeerMapping() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

}  // namespace kolo
