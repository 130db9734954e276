// A build without MPI.
#include "runtime/base/check.h"
#include "runtime/bootstrap/mpi_bootstrap.h"

namespace kolo {

bool mpi_built() { return false; }
int open_mpi_version() { return 0; }
bool mpi_is_running() { return false; }

Result<std::unique_ptr<Bootstrap>> make_mpi_bootstrap(const void*, Deadline) {
  return KOLO_ERROR(
      kUnsupported,
      "this build of kolo has no MPI; configure with -DKOLO_WITH_MPI=ON, or start the "
      "program with kolo-run");
}

}  // namespace kolo
