// Work::order(). It is here and not in runtime/base because the base does not know devices. Any
// thread.
#include "runtime/base/check.h"
#include "runtime/device/accelerator.h"

#include <kolo/work.h>

namespace kolo {

Status Work::order(CudaStream stream) const {
  KOLO_CHECK(done());
  return outcome_.on_device == nullptr ? Status() : outcome_.on_device->order(stream.handle);
}

}  // namespace kolo
