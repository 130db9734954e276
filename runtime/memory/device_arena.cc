#include "runtime/memory/device_arena.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace kolo {

DeviceArena::DeviceArena(std::shared_ptr<DeviceMemory> window, std::size_t begin)
    : window_(std::move(window)),
      begin_(begin),
      free_(begin, round_down(window_->bytes().size(), kAlignment)) {}

Result<std::shared_ptr<std::byte>> DeviceArena::allocate(Accelerator& accelerator,
                                                         std::size_t bytes) {
  const std::size_t size =
      bytes > SIZE_MAX - kAlignment ? bytes : round_up(std::max(bytes, std::size_t{1}), kAlignment);
  const std::optional<std::size_t> offset = free_.take(size);
  if (!offset)
    return KOLO_ERROR(kOutOfMemory,
                      "no {} bytes of the device that ranks of this host share: {} of the {} of "
                      "KOLO_DEVICE_ARENA are in use",
                      bytes, bytes_used(), capacity());
  std::shared_ptr<std::byte> memory(window_->bytes().data() + *offset,
                                    [self = shared_from_this(), offset = *offset,
                                     size](std::byte*) { self->free_.give_back(offset, size); });
  KOLO_TRY(accelerator.synchronize());
  KOLO_ASSIGN(const auto stream, accelerator.new_stream());
  KOLO_TRY(stream->zero(memory.get(), size));
  KOLO_ASSIGN(const auto zeroed, stream->record());
  KOLO_TRY(zeroed->synchronize());
  return memory;
}

std::optional<std::size_t> DeviceArena::offset_of(const std::byte* data, std::size_t bytes) const {
  return offset_within(window_->bytes(), begin_, data, bytes);
}

}  // namespace kolo
