// UniqueHandle: the sole owner of a handle of a C library (a descriptor, an MPI or UCX object).
// Traits give `Type`, `invalid()` and `close(Type)`.
#pragma once

#include <utility>

namespace kolo {

template <class Traits>
class UniqueHandle {
 public:
  using Type = typename Traits::Type;

  UniqueHandle() = default;
  explicit UniqueHandle(Type handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept
      : handle_(std::exchange(other.handle_, Traits::invalid())) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(std::exchange(other.handle_, Traits::invalid()));
    return *this;
  }
  ~UniqueHandle() { reset(); }

  Type get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Traits::invalid(); }
  Type release() noexcept { return std::exchange(handle_, Traits::invalid()); }
  void reset(Type handle = Traits::invalid()) noexcept {
    const Type old = std::exchange(handle_, handle);
    if (old != Traits::invalid()) Traits::close(old);
  }

 private:
  Type handle_ = Traits::invalid();
};

struct DescriptorTraits {
  using Type = int;
  static constexpr int invalid() { return -1; }
  static void close(int fd) noexcept;
};
/// Owner of a file descriptor.
using UniqueDescriptor = UniqueHandle<DescriptorTraits>;

}  // namespace kolo
