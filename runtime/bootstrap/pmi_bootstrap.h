// Bootstrap over PMI 1, which the launchers of MPICH, Intel MPI and their derivatives offer to
// every program, MPI or not. An exchange is a put, one barrier that distributes all data, and gets.
// Used by the thread that calls init.
#pragma once

#include "runtime/base/environment.h"
#include "runtime/bootstrap/bootstrap.h"

#include <memory>

namespace kolo {

/// Connects to the launcher, which tells rank and size. `exchanges`: see MeetingParts::exchanges.
/// Errors: see PmiClient::connect(). An exchange that misses its deadline names the missing ranks.
/// The launcher then waits for them forever, so this process cannot meet again.
Result<std::unique_ptr<Bootstrap>> make_pmi_bootstrap(const Environment& environment,
                                                      std::shared_ptr<int> exchanges,
                                                      Deadline deadline);

}  // namespace kolo
