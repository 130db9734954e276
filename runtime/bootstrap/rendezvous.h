// Rendezvous: goes the way in that was found, and gives the Bootstrap over which the ranks then
// exchange what they need. Used by the thread that calls init.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/way_in.h"

#include <memory>
#include <string>

namespace kolo {

/// Collective, unless it is a world of one. `number` counts the meetings of this process, alike on
/// all ranks, so that one that ended harms none that follows. Over a store, rank 0 serves it unless
/// its launcher does. `mpi_communicator` as for make_mpi_bootstrap().
Result<std::unique_ptr<Bootstrap>> meet(const WayIn& way, const std::string& secret, int number,
                                        const void* mpi_communicator,
                                        const Environment& environment, Deadline deadline);

}  // namespace kolo
