// For a build without gloo.
#include "tools/perf/engine.h"

namespace kolo::perf {

Result<std::unique_ptr<Engine>> gloo_engine() {
  return Error{ErrorCode::kUnsupported,
               "--compare gloo: this build has no gloo; install it (Debian: libgloo-dev) and "
               "configure with KOLO_WITH_GLOO=ON"};
}

}  // namespace kolo::perf
