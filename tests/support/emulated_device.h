// The device behind EmulatedAccelerators: injected failures and delays, writes of network cards,
// and records of the work done.
#pragma once

#include "runtime/device/accelerator.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace kolo::test {

/// One device; several accelerators (ranks) may use it.
class EmulatedDevice {
 public:
  explicit EmulatedDevice(std::uint8_t number);
  const DeviceUuid& uuid() const { return uuid_; }

  /// Makes all later work fail, as after a fault.
  void fail() { failed_ = true; }
  bool failed() const { return failed_; }
  /// Makes imports of its memory fail, as between devices that do not reach each other.
  void forbid_import() { can_import_ = false; }
  bool can_import() const { return can_import_; }
  /// Maps other memory than the peer's, as a misconfigured IOMMU does.
  void lead_astray() { leads_astray_ = true; }
  bool leads_astray() const { return leads_astray_; }
  /// Number of imports of its memory, and of allocations that were freed while imported.
  std::atomic<int>& imports() { return imports_; }
  std::atomic<int>& freed_too_early() { return freed_too_early_; }

  /// Number of pieces that streams were given, and of those whose memory is not equally aligned to
  /// 16 bytes: a kernel would read and write them by single elements.
  struct Pieces {
    std::atomic<std::size_t> all = 0;
    std::atomic<std::size_t> unlike = 0;
    std::atomic<std::size_t> copies = 0;  ///< pieces with one source
  };
  Pieces& pieces() { return pieces_; }

  /// Streams wait before they write to this memory of the device, until the promise is kept.
  void hold_writes_to(std::span<std::byte> memory, std::shared_future<void> until);
  /// Number of times that a stream has reached such a write.
  const std::atomic<int>& held_writes() const { return held_writes_; }
  /// As hold_writes_to(), for reads.
  void hold_reads_of(std::span<const std::byte> memory, std::shared_future<void> until);
  const std::atomic<int>& held_reads() const { return held_reads_; }
  /// A network card's write to device memory; visible once it was taken. Any thread.
  void write_from_network(std::span<std::byte> destination, std::vector<std::byte> bytes);
  void take_network_writes();
  /// Drops writes to this memory that were not taken.
  void forget_network_writes(std::span<std::byte> memory);

  /// On a stream's thread, before it writes there, or reads.
  void await_writes_to(const std::byte* address) { await(held_to_, address, held_writes_); }
  void await_reads_of(const std::byte* address) { await(held_from_, address, held_reads_); }

 private:
  using Held = std::vector<std::pair<std::span<const std::byte>, std::shared_future<void>>>;
  void await(const Held& held, const std::byte* address, std::atomic<int>& count);

  DeviceUuid uuid_ = {};
  Pieces pieces_;
  std::mutex mutex_;
  Held held_to_;
  Held held_from_;
  std::vector<std::pair<std::span<std::byte>, std::vector<std::byte>>> from_network_;
  std::atomic<int> held_writes_ = 0;
  std::atomic<int> held_reads_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> can_import_ = true;
  std::atomic<bool> leads_astray_ = false;
  std::atomic<int> imports_ = 0;
  std::atomic<int> freed_too_early_ = 0;
};

}  // namespace kolo::test
