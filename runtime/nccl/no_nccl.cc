// A build without NCCL.
#include "runtime/base/check.h"
#include "runtime/nccl/nccl_api.h"

namespace kolo {

bool nccl_is_built() { return false; }

Result<std::unique_ptr<NcclApi>> open_nccl() {
  return KOLO_ERROR(kUnsupported,
                    "this build of kolo is without NCCL; build it with -DKOLO_WITH_CUDA=ON "
                    "-DKOLO_WITH_NCCL=ON, or set KOLO_OPERATIONS=kolo");
}

}  // namespace kolo
