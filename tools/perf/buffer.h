// The memory that kolo-perf measures on. Header-only; main thread.
#pragma once

#include <kolo/kolo.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace kolo::perf {

enum class Memory {
  kPrivate,  ///< a rank's own
  kShared,   ///< of kolo::allocate()
};

/// Zeroed, so that no page is missing when it is timed, and aligned at least as LibTorch aligns
/// tensors, so that no library meets a line that two vectors share.
class Buffer {
 public:
  Buffer(std::size_t size, Memory memory) : size_(size), data_(allocate_as(memory, size)) {
    std::memset(data_.get(), 0, size_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};

  static std::shared_ptr<void> allocate_as(Memory memory, std::size_t size) {
    if (memory == Memory::kShared) return allocate(size);
    return {::operator new(size, kAlignment),
            [](void* data) { ::operator delete(data, kAlignment); }};
  }

  std::size_t size_;
  std::shared_ptr<void> data_;
};

}  // namespace kolo::perf
