#include "runtime/memory/free_ranges.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace kolo {

FreeRanges::FreeRanges(std::size_t begin, std::size_t end) {
  if (end > begin) free_.emplace(begin, end - begin);
}

std::size_t FreeRanges::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::optional<std::size_t> FreeRanges::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto fits = std::find_if(free_.begin(), free_.end(),
                                 [bytes](const auto& range) { return range.second >= bytes; });
  if (fits == free_.end()) return std::nullopt;
  const auto [offset, length] = *fits;
  free_.erase(fits);
  if (length > bytes) free_.emplace(offset + bytes, length - bytes);
  used_ += bytes;
  return offset;
}

void FreeRanges::give_back(std::size_t offset, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

std::optional<std::size_t> offset_within(std::span<const std::byte> block, std::size_t begin,
                                         const std::byte* data, std::size_t bytes) {
  const std::less<const std::byte*> before;
  if (before(data, block.data() + begin) || before(block.data() + block.size(), data + bytes))
    return std::nullopt;
  return static_cast<std::size_t>(data - block.data());
}

}  // namespace kolo
