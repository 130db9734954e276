// The device of EmulatedAccelerators: how it fails, what it is kept from, what network cards write
// to it, and what was done with it.
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

/// One device, of which several accelerators (ranks) may be users.
class EmulatedDevice {
 public:
  explicit EmulatedDevice(std::uint8_t number);
  const DeviceUuid& uuid() const { return uuid_; }

  /// From now on all work fails, as after a fault.
  void fail() { failed_ = true; }
  bool failed() const { return failed_; }
  /// Importing memory of it fails, as between devices that do not reach each other.
  void forbid_import() { can_import_ = false; }
  bool can_import() const { return can_import_; }
  /// What it maps of peers is other memory, as where an IOMMU leads it astray.
  void lead_astray() { leads_astray_ = true; }
  bool leads_astray() const { return leads_astray_; }
  /// How often memory of it is imported, and how much of it was freed while that was so.
  std::atomic<int>& imports() { return imports_; }
  std::atomic<int>& freed_too_early() { return freed_too_early_; }

  /// Pieces that streams were given, and those of them of which not all memory lies alike to 16
  /// bytes: a kernel would read and write them by single elements.
  struct Pieces {
    std::atomic<std::size_t> all = 0;
    std::atomic<std::size_t> unlike = 0;
    std::atomic<std::size_t> copies = 0;  ///< of one source
  };
  Pieces& pieces() { return pieces_; }

  /// Streams wait with what they write to that memory of the device until the promise is kept.
  void hold_writes_to(std::span<std::byte> memory, std::shared_future<void> until);
  /// How often a stream has come to such a write so far.
  const std::atomic<int>& held_writes() const { return held_writes_; }
  /// The same of what they read.
  void hold_reads_of(std::span<const std::byte> memory, std::shared_future<void> until);
  const std::atomic<int>& held_reads() const { return held_reads_; }
  /// What a network card writes to memory of the device is there once it was taken; any thread.
  void write_from_network(std::span<std::byte> destination, std::vector<std::byte> bytes);
  void take_network_writes();
  /// Those that were not taken, and would go there, never are.
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
