// Bootstrap over MPI, which exchanges addresses and is not called again until exit. Its source is
// mpi_bootstrap.cc, or no_mpi_bootstrap.cc in a build without MPI. Used by the thread that calls
// init, which becomes MPI's main thread if MPI was not initialised before.
#pragma once

#include "runtime/bootstrap/bootstrap.h"

#include <kolo/export.h>

#include <memory>

namespace kolo {

/// Public, as part of <kolo/kolo.h>.
KOLO_API bool mpi_built();

/// The major version of Open MPI; 0 for another MPI or none. Open MPI learns its rank from its own
/// launcher over PMIx. Every other MPI uses the PMI (or PMIx) of its own launcher.
int open_mpi_version();

/// Whether the user has initialised MPI and not finalised it. False without MPI.
bool mpi_is_running();

/// Collective. `communicator` points to the MPI_Comm whose ranks take part; null: MPI_COMM_WORLD.
/// kolo duplicates it. Initialises MPI unless the user has done so. finalize() finalises MPI only
/// if this call, or an earlier one that failed, initialised it. At the deadline, an MPI_Init() that
/// does not return ends the process with 1, after a line in the log.
/// kUnsupported without MPI; kInvalidArgument after MPI_Finalize() or if this process is not in the
/// communicator; kTimeout if not all of its ranks call.
Result<std::unique_ptr<Bootstrap>> make_mpi_bootstrap(const void* communicator, Deadline deadline);

}  // namespace kolo
