// The way in over MPI, which exchanges addresses and is not called again until exit. Its source is
// mpi_bootstrap.cc, or no_mpi_bootstrap.cc in a build without MPI. Used by the thread that calls
// init, which becomes MPI's main thread if MPI was not initialised yet.
#pragma once

#include "runtime/bootstrap/bootstrap.h"

#include <memory>

namespace kolo {

/// `communicator` points to the MPI_Comm whose ranks take part (it is duplicated); null:
/// MPI_COMM_WORLD. MPI is initialised unless the user has done so, and finalised by finalize() only
/// if it was initialised here. kUnsupported without MPI; kInvalidArgument after MPI_Finalize.
Result<std::unique_ptr<Bootstrap>> make_mpi_bootstrap(const void* communicator);

}  // namespace kolo
