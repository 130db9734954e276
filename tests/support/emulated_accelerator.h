// An accelerator of threads, for tests where there is no GPU: a stream is a thread, and device
// memory lies behind addresses that the host cannot read. It is an emulation of what kolo relies on
// (order within streams, events, pinned memory, memory that peers import), not of CUDA. What kolo
// gets wrong in order or place becomes a fault, a failed operation or a race that the thread
// sanitizer sees.
#pragma once

#include "runtime/device/accelerator.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test {

class Queue;

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
  /// What a network card writes to memory of the device is there once it was taken; any thread.
  void write_from_network(std::span<std::byte> destination, std::vector<std::byte> bytes);
  void take_network_writes();
  /// Those that were not taken, and would go there, never are.
  void forget_network_writes(std::span<std::byte> memory);

  /// On a stream's thread, before it writes there.
  void await_writes_to(const std::byte* address);

 private:
  DeviceUuid uuid_ = {};
  Pieces pieces_;
  std::mutex mutex_;
  std::vector<std::pair<std::span<std::byte>, std::shared_future<void>>> held_;
  std::vector<std::pair<std::span<std::byte>, std::vector<std::byte>>> from_network_;
  std::atomic<int> held_writes_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> can_import_ = true;
  std::atomic<int> imports_ = 0;
  std::atomic<int> freed_too_early_ = 0;
};

class EmulatedAccelerator final : public Accelerator {
 public:
  EmulatedAccelerator(std::shared_ptr<EmulatedDevice> device, int ordinal);
  ~EmulatedAccelerator() override;

  const AcceleratorInfo& info() const override { return info_; }
  Result<std::unique_ptr<DeviceStream>> new_stream() override;
  Result<std::shared_ptr<DeviceEvent>> record(void* native_stream) override;
  Result<std::unique_ptr<DeviceMemory>> allocate(std::size_t bytes) override;
  Result<std::unique_ptr<DeviceMemory>> pin(std::span<std::byte> host) override;
  Result<std::unique_ptr<DeviceMemory>> allocate_pinned(std::size_t bytes) override;
  Result<std::string> export_memory(const DeviceMemory& memory) override;
  Result<std::unique_ptr<DeviceMemory>> import_memory(std::string_view key) override;
  MemoryPlace place_of(const void* address) override;
  Status synchronize() override;
  Status take_network_writes() override;
  void use_for(const std::function<void()>& call) override { call(); }

  /// For tests: what an address of the device stands for, to be read and written by streams, or
  /// after what was done there is awaited.
  static std::byte* behind(const std::byte* address);
  /// Another library's stream: its handle, and a way to give it work. It belongs to the test.
  static void give(void* native_stream, std::function<void()> work);

  std::size_t bytes_allocated() const { return *allocated_; }
  /// That were ever allocated: what is staged takes them.
  std::size_t pinned_blocks() const { return pinned_blocks_; }
  /// Of allocate_pinned().
  std::size_t bytes_pinned() const { return *pinned_; }
  EmulatedDevice& device() { return *device_; }

 private:
  const std::shared_ptr<EmulatedDevice> device_;
  AcceleratorInfo info_;
  const std::shared_ptr<std::atomic<std::size_t>> allocated_;
  std::atomic<std::size_t> pinned_blocks_ = 0;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Queue>> queues_;  ///< of its streams
  const std::shared_ptr<std::atomic<std::size_t>> pinned_;
};

}  // namespace kolo::test
