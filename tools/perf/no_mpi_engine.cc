// For a build without MPI.
#include "tools/perf/engine.h"

namespace kolo::perf {

void begin_mpi() {}

Result<std::unique_ptr<Engine>> mpi_engine() {
  return Error{ErrorCode::kUnsupported,
               "--compare mpi: this build has no MPI; configure it with KOLO_WITH_MPI=ON"};
}

}  // namespace kolo::perf
