// For a build without CUDA.
#include "tools/perf/gpu.h"

namespace kolo::perf {

Result<std::unique_ptr<Gpu>> open_gpu() {
  return Error{ErrorCode::kUnsupported,
               "--device cuda: this build of kolo is without CUDA; build it with "
               "-DKOLO_WITH_CUDA=ON"};
}

}  // namespace kolo::perf
