// FreeRanges: which parts of a block of memory are free. Used by SharedArena and DeviceArena. Any
// thread.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <span>

namespace kolo {

class FreeRanges {
 public:
  /// All of [begin, end) is free.
  FreeRanges(std::size_t begin, std::size_t end);

  /// First fit, lowest offset first, so that memory is reused. Nothing if no range is large enough.
  std::optional<std::size_t> take(std::size_t bytes);
  /// Returns a range of take() as a whole.
  void give_back(std::size_t offset, std::size_t bytes);
  /// Bytes in use.
  std::size_t used() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  ///< length by offset; adjacent ranges are merged
  std::size_t used_ = 0;
};

/// Offset of the memory within `block`; nothing unless all of it lies in the block, at offset
/// `begin` or behind.
std::optional<std::size_t> offset_within(std::span<const std::byte> block, std::size_t begin,
                                         const std::byte* data, std::size_t bytes);

}  // namespace kolo
