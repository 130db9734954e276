#include "runtime/communicator/shared_arena.h"

#include "runtime/base/check.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) {
  return (std::max(bytes, std::size_t{1}) + kPage - 1) / kPage * kPage;
}

}  // namespace

SharedArena::SharedArena(std::shared_ptr<MemoryRegion> region, std::size_t begin)
    : region_(std::move(region)), begin_(begin), owner_(getpid()) {
  if (const std::size_t end = region_->bytes().size(); end > begin)
    free_.emplace(begin, (end - begin) / kPage * kPage);
}

Result<std::shared_ptr<std::byte>> SharedArena::allocate(std::size_t bytes) {
  const std::size_t size = bytes > SIZE_MAX - kPage ? bytes : whole_pages(bytes);
  const std::optional<std::size_t> offset = take(size);
  if (!offset) {
    return KOLO_ERROR(kOutOfMemory,
                      "no {} bytes that ranks of this host share: {} of the {} of KOLO_ARENA are "
                      "in use",
                      bytes, bytes_used(), region_->bytes().size() - begin_);
  }
  if (Status committed = region_->commit(*offset, size); !committed.ok()) {
    give_back(*offset, size);
    return std::move(committed).error();
  }
  return std::shared_ptr<std::byte>(
      region_->bytes().data() + *offset,
      [self = shared_from_this(), offset = *offset, size](std::byte*) {
        if (self->owner_ != getpid()) return;
        self->region_->discard(offset, size);
        self->give_back(offset, size);
      });
}

std::optional<std::size_t> SharedArena::offset_of(const std::byte* data, std::size_t bytes) const {
  const std::span<const std::byte> window = region_->bytes();
  const std::less<const std::byte*> before;
  if (before(data, window.data() + begin_) || before(window.data() + window.size(), data + bytes))
    return std::nullopt;
  return static_cast<std::size_t>(data - window.data());
}

std::size_t SharedArena::bytes_used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::optional<std::size_t> SharedArena::take(std::size_t bytes) {
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

void SharedArena::give_back(std::size_t offset, std::size_t bytes) {
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

}  // namespace kolo
