// For a build without NCCL.
#include "tools/perf/engine.h"

namespace kolo::perf {

Result<std::unique_ptr<Engine>> nccl_engine(Gpu* /*gpu*/) {
  return Error{ErrorCode::kUnsupported,
               "--compare nccl: this build has no NCCL; configure it with KOLO_WITH_CUDA=ON and "
               "KOLO_WITH_NCCL=ON"};
}

}  // namespace kolo::perf
