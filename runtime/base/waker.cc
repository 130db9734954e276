#include "runtime/base/waker.h"

#include "runtime/base/check.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace kolo {

void DescriptorTraits::close(int fd) noexcept { ::close(fd); }

Waker::Waker() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { KOLO_CHECK(bool(fd_)); }

void Waker::wake() const noexcept {
  const std::uint64_t one = 1;
  // EAGAIN: the eventfd is signalled already.
  [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
}

void Waker::clear() const noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace kolo
