// The way in over PMI 1, which the launchers of MPICH, Intel MPI and their kin offer to every
// program, MPI or not: put, one barrier that hands out all data, get. Used by the thread that calls
// init.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/bootstrap/bootstrap.h"

#include <memory>

namespace kolo {

/// Connects to the launcher, which tells rank and size. `exchanges`: as MeetingParts::exchanges.
/// Errors as of PmiClient::connect(). An exchange that misses its deadline names the ranks that did
/// not come; the launcher then waits for them for good, so the process cannot meet anew.
Result<std::unique_ptr<Bootstrap>> make_pmi_bootstrap(const Environment& environment,
                                                      std::shared_ptr<int> exchanges,
                                                      Deadline deadline);

}  // namespace kolo
