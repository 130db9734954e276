// The way in over MPI, which exchanges addresses and is not called again until exit. Its source is
// mpi_bootstrap.cc, or no_mpi_bootstrap.cc in a build without MPI. Used by the thread that calls
// init, which becomes MPI's main thread if MPI was not initialised yet.
#pragma once

#include "runtime/bootstrap/bootstrap.h"

#include <kolo/export.h>

#include <memory>

namespace kolo {

/// Public as part of <kolo/kolo.h>.
KOLO_API bool mpi_built();

/// The major version of Open MPI, 0 if this is another MPI or none. It asks its own launcher over
/// PMIx who it is; every other MPI asks the PMI of its own launcher (or PMIx, too).
int open_mpi_version();

/// Whether the user has initialised MPI already (and not finalised it). Never without MPI.
bool mpi_is_running();

/// Collective. `communicator` points to the MPI_Comm whose ranks take part (it is duplicated);
/// null: MPI_COMM_WORLD. MPI is initialised unless the user has done so, and finalised by
/// finalize() only if it was initialised here, by this call or one that failed; MPI_Init itself
/// knows no deadline. kUnsupported without MPI, kInvalidArgument after MPI_Finalize or for a
/// communicator that this process is not in, kTimeout if not all of its ranks come.
Result<std::unique_ptr<Bootstrap>> make_mpi_bootstrap(const void* communicator, Deadline deadline);

}  // namespace kolo
