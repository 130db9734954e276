// An accelerator of threads, for tests without a GPU. A stream is a thread, and device memory lies
// behind addresses that the host cannot read. It emulates what kolo relies on (order within
// streams, events, pinned memory, memory that peers import), not CUDA. A mistake of kolo in order
// or place becomes a fault, a failed operation or a race that the thread sanitizer sees.
#pragma once

#include "runtime/device/accelerator.h"
#include "tests/support/emulated_device.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace kolo::test {

class Queue;

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
  MemoryLocation location_of(const void* address) override;
  Status synchronize() override;
  Status take_network_writes() override;
  void use_for(const std::function<void()>& call) override { call(); }

  /// For tests: the host address behind a device address. Only streams may use it, or code that has
  /// waited for the work there.
  static std::byte* behind(const std::byte* address);
  /// Gives work to another library's stream, by its handle. The test owns the stream.
  static void give(void* native_stream, std::function<void()> work);

  std::size_t bytes_allocated() const { return *allocated_; }
  /// Number of pinned blocks ever allocated; staging needs them.
  std::size_t pinned_blocks() const { return pinned_blocks_; }
  /// Bytes from allocate_pinned().
  std::size_t bytes_pinned() const { return *pinned_; }
  EmulatedDevice& device() { return *device_; }

 private:
  const std::shared_ptr<EmulatedDevice> device_;
  AcceleratorInfo info_;
  const std::shared_ptr<std::atomic<std::size_t>> allocated_;
  std::atomic<std::size_t> pinned_blocks_ = 0;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Queue>> queues_;  ///< its streams
  const std::shared_ptr<std::atomic<std::size_t>> pinned_;
};

}  // namespace kolo::test
