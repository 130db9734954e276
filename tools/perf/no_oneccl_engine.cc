// For a build without oneCCL.
#include "tools/perf/engine.h"

namespace kolo::perf {

Result<std::unique_ptr<Engine>> oneccl_engine() {
  return Error{ErrorCode::kUnsupported,
               "--compare oneccl: this kolo-perf has no oneCCL; tools/bench peers, in kolo's "
               "sources, makes one"};
}

}  // namespace kolo::perf
