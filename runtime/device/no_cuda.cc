// A build without CUDA: there is no accelerator.
#include "runtime/base/check.h"
#include "runtime/device/accelerator.h"

namespace kolo {

Accelerators find_accelerators() { return {0, "this build of kolo is without CUDA"}; }

Result<std::unique_ptr<Accelerator>> open_accelerator(int ordinal) {
  return KOLO_ERROR(kUnsupported,
                    "there is no CUDA device {}: this build of kolo is without CUDA; build it with "
                    "-DKOLO_WITH_CUDA=ON",
                    ordinal);
}

}  // namespace kolo
