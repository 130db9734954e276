// Rendezvous: goes the way in that was found, and gives the Bootstrap over which the ranks then
// exchange what they need. Used by the thread that calls init.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/store.h"
#include "runtime/bootstrap/way_in.h"

#include <functional>
#include <memory>
#include <string>

namespace kolo {

/// What a meeting takes besides its way in.
struct MeetingParts {
  std::string secret = {};

  /// Of this meeting over a store of the user's, alike on all ranks, so that what is left of one
  /// harms none that follows. Such a store cannot tell a rank how often the others have tried, so
  /// it counts the calls of init(), those too that failed before they met anybody: the n-th call of
  /// each rank meets the n-th of the others. Other ways do without.
  int number = 1;
  /// What this process has exchanged with the others over PMIx or PMI, counted there, for all of
  /// its meetings: launchers pair exchanges by their order alone.
  std::shared_ptr<int> exchanges = std::make_shared<int>(0);
  const void* mpi_communicator = nullptr;  ///< as for make_mpi_bootstrap()
  std::unique_ptr<Store> store = nullptr;  ///< of Meeting::kStore
  /// For lines that warn; any thread, until the Bootstrap is gone.
  std::function<void(const std::string& line)> warn = nullptr;
};

/// Collective, unless it is a world of one. Over TCP, rank 0 serves the store unless its launcher
/// does.
Result<std::unique_ptr<Bootstrap>> meet(const WayIn& way, MeetingParts parts,
                                        const Environment& environment, Deadline deadline);

}  // namespace kolo
