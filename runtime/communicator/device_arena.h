// DeviceArena: memory of a rank's device, for users and for gradient buckets, that all ranks of the
// host have mapped, so that collectives on it copy nothing. A part of this rank's DeviceWindow,
// handed out in pieces. Any thread.
#pragma once

#include "runtime/communicator/free_ranges.h"
#include "runtime/device/accelerator.h"

#include <cstddef>
#include <memory>
#include <optional>

namespace kolo {

class DeviceArena : public std::enable_shared_from_this<DeviceArena> {
 public:
  /// The part of `window` from `begin`, a multiple of kAlignment, on.
  DeviceArena(std::shared_ptr<DeviceMemory> window, std::size_t begin);

  /// As PyTorch aligns its own; kernels load 16 bytes at once.
  static constexpr std::size_t kAlignment = 512;

  /// Zeroed, when it returns; it waits for the device, which may still work on memory that was here
  /// before. Whoever holds it keeps the window's memory alive, so it may outlive the runtime.
  /// kOutOfMemory names the size and what is left; kDevice.
  Result<std::shared_ptr<std::byte>> allocate(Accelerator& accelerator, std::size_t bytes);

  /// Where memory lies within the window; nothing if it does not lie in this arena as a whole.
  std::optional<std::size_t> offset_of(const std::byte* data, std::size_t bytes) const;

  /// Bytes that it can hand out in all, and that are handed out.
  std::size_t capacity() const { return window_->bytes().size() - begin_; }
  std::size_t bytes_used() const { return free_.used(); }

 private:
  const std::shared_ptr<DeviceMemory> window_;
  const std::size_t begin_;
  FreeRanges free_;
};

}  // namespace kolo
