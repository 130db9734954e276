// FreeRanges: which parts of a block of memory are free. Used by the arenas, of the host's memory
// and of a device's. Any thread.
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

  /// First fit: lowest offsets first, so that memory is used again. Nothing where none is left.
  std::optional<std::size_t> take(std::size_t bytes);
  /// What take() gave, as a whole.
  void give_back(std::size_t offset, std::size_t bytes);
  /// Bytes that are taken.
  std::size_t used() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  ///< length by offset; neighbours are joined
  std::size_t used_ = 0;
};

/// Where memory begins within a block; nothing unless all of it lies there, at `begin` or behind.
std::optional<std::size_t> offset_within(std::span<const std::byte> block, std::size_t begin,
                                         const std::byte* data, std::size_t bytes);

}  // namespace kolo
