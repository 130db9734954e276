// Waker: an eventfd that ends another thread's poll(). Any thread may wake; the polling thread
// clears.
#pragma once

#include "runtime/base/unique_handle.h"

namespace kolo {

class Waker {
 public:
  Waker();
  void wake() const noexcept;
  void clear() const noexcept;
  int fd() const noexcept { return fd_.get(); }

 private:
  UniqueDescriptor fd_;
};

}  // namespace kolo
