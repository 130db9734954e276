// Memory that the transport knows: registered for sending without staging, or allocated so that
// peers can map it. Owned by unique_ptr; the transport outlives it. Token holder only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kolo {

/// Memory that this rank registered or allocated through its transport.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::span<std::byte> bytes() const = 0;
  /// What a peer passes to Transport::map_peer(). Opaque.
  virtual std::string key() const = 0;
};

/// A peer's region in this process's address space. The peer must keep the region meanwhile.
class PeerMapping {
 public:
  virtual ~PeerMapping() = default;
  virtual std::span<std::byte> bytes() const = 0;
};

}  // namespace kolo
