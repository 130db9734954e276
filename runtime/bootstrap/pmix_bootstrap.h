// Bootstrap over PMIx, which Open MPI's mpirun and `srun --mpi=pmix` offer to every program, MPI or
// not. An exchange is a put, one fence that distributes all data, and gets. Its source is
// pmix_bootstrap.cc, or no_pmix_bootstrap.cc in a build without PMIx. Used by the thread that calls
// init.
#pragma once

#include "runtime/bootstrap/bootstrap.h"

#include <memory>

namespace kolo {

bool pmix_built();

/// Connects to this host's PMIx server, which tells rank and size. `exchanges`: see
/// MeetingParts::exchanges. kUnsupported without PMIx, kTransport if no server answers.
Result<std::unique_ptr<Bootstrap>> make_pmix_bootstrap(std::shared_ptr<int> exchanges,
                                                       Deadline deadline);

}  // namespace kolo
