// DeviceArena: memory of a rank's device, for users and for gradient buckets. All ranks of the host
// have mapped it, so collectives on it need no copies. It is a part of this rank's DeviceWindow.
// Any thread.
#pragma once

#include "runtime/device/accelerator.h"
#include "runtime/memory/free_ranges.h"

#include <cstddef>
#include <memory>
#include <optional>

namespace kolo {

class DeviceArena : public std::enable_shared_from_this<DeviceArena> {
 public:
  /// The part of `window` from offset `begin`, a multiple of kAlignment, to its end.
  DeviceArena(std::shared_ptr<DeviceMemory> window, std::size_t begin);

  /// Bytes. PyTorch aligns its allocations to this, too; kernels load 16 bytes at once.
  static constexpr std::size_t kAlignment = 512;

  /// Zeroed memory. Blocks until the device is idle, since the device may still use memory that was
  /// here before. The pointer keeps the window's memory alive, so it may outlive the runtime.
  /// kOutOfMemory names the size and how much is in use; kDevice if CUDA fails.
  Result<std::shared_ptr<std::byte>> allocate(Accelerator& accelerator, std::size_t bytes);

  /// Offset of the memory in the window; nothing if it does not lie in this arena as a whole.
  std::optional<std::size_t> offset_of(const std::byte* data, std::size_t bytes) const;

  /// Bytes of the whole arena, and bytes in use.
  std::size_t capacity() const { return window_->bytes().size() - begin_; }
  std::size_t bytes_used() const { return free_.used(); }

 private:
  const std::shared_ptr<DeviceMemory> window_;
  const std::size_t begin_;
  FreeRanges free_;
};

}  // namespace kolo
