#include "runtime/memory/shared_arena.h"

#include "runtime/base/check.h"
#include "runtime/base/page.h"
#include "runtime/base/rounding.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace kolo {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  return round_up(std::max(bytes, std::size_t{1}), kPage);
}

}  // namespace

SharedArena::SharedArena(std::shared_ptr<MemoryRegion> region, std::size_t begin)
    : region_(std::move(region)),
      begin_(begin),
      owner_(getpid()),
      free_(begin, round_down(region_->bytes().size(), kPage)) {}

Result<std::shared_ptr<std::byte>> SharedArena::allocate(std::size_t bytes) {
  const std::size_t size = bytes > SIZE_MAX - kPage ? bytes : whole_pages(bytes);
  const std::optional<std::size_t> offset = free_.take(size);
  if (!offset) {
    return KOLO_ERROR(kOutOfMemory,
                      "no {} bytes that ranks of this host share: {} of the {} of KOLO_ARENA are "
                      "in use",
                      bytes, bytes_used(), region_->bytes().size() - begin_);
  }
  if (Status committed = region_->commit(*offset, size); !committed.ok()) {
    free_.give_back(*offset, size);
    return std::move(committed).error();
  }
  return std::shared_ptr<std::byte>(
      region_->bytes().data() + *offset,
      [self = shared_from_this(), offset = *offset, size](std::byte*) {
        if (self->owner_ != getpid()) return;
        self->region_->discard(offset, size);
        self->free_.give_back(offset, size);
      });
}

std::optional<std::size_t> SharedArena::offset_of(const std::byte* data, std::size_t bytes) const {
  return offset_within(region_->bytes(), begin_, data, bytes);
}

}  // namespace kolo
