// The way in under an MPI launcher: over MPI where this build's MPI is the launcher's, else over
// what the launcher offers to every program. Pure; a part of way_in.
#pragma once

#include "runtime/bootstrap/way_in.h"

#include <optional>

namespace kolo {

/// Nothing where no MPI launcher started the process, or where it says no more than rank and size.
std::optional<WayIn> way_by_mpi_launcher(const WayInRequest& request,
                                         const Environment& environment);

}  // namespace kolo
