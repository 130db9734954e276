// The rendezvous method under an MPI launcher: MPI if this build's MPI fits the launcher, else what
// the launcher offers to every program. Pure; a part of rendezvous_method.
#pragma once

#include "runtime/bootstrap/rendezvous_method.h"

#include <optional>

namespace kolo {

/// Nothing if no MPI launcher started the process, or if the launcher tells only rank and size.
std::optional<RendezvousMethod> way_by_mpi_launcher(const RendezvousRequest& request,
                                                    const Environment& environment);

}  // namespace kolo
