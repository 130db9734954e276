// Memory that the transport knows: registered for sends without staging, or allocated so that peers
// can map it. Owned by unique_ptr; the transport outlives it. Reserved memory
// (runtime/memory/shared_region.h) has the same interface, and needs no transport. Token holder
// only, except commit() and discard(): any thread may call them for its own ranges.
#pragma once

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kolo {

/// Where memory lies. UCX is always told, because finding out would take the driver's lock.
enum class MemoryType : std::uint8_t { kHost, kCuda };

/// Memory of this rank.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::span<std::byte> bytes() const = 0;
  virtual MemoryType type() const { return MemoryType::kHost; }
  /// The key by which a peer maps it. Opaque.
  virtual std::string key() const = 0;

  /// For a reserved region: backs a range of whole pages with memory, so that touching it cannot
  /// kill the process. kOutOfMemory if there is none; then no page of the range is backed. All
  /// other regions are always backed.
  virtual Status commit(std::size_t /*offset*/, std::size_t /*bytes*/) { return {}; }
  /// Gives a committed range back. Its content is lost; committed again, it reads as zeros.
  virtual void discard(std::size_t /*offset*/, std::size_t /*bytes*/) {}
};

/// The type of the region `memory`; null stands for unregistered host memory.
inline MemoryType type_of(const MemoryRegion* memory) {
  return memory == nullptr ? MemoryType::kHost : memory->type();
}

/// A peer's region, mapped into this process. The peer must keep the region meanwhile.
class PeerMapping {
 public:
  virtual ~PeerMapping() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

}  // namespace kolo
