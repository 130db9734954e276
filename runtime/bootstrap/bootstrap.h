// Bootstrap: tells a process its rank and lets all ranks exchange small blobs until the transport
// is connected. Implementations: a world of one, MPI, PMIx, PMI, and any Store (StoreBootstrap).
// Used by the thread that calls init.
#pragma once

#include "runtime/base/deadline.h"

#include <kolo/error.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// How long a rank that leaves a meeting waits, so that the others learn why it failed.
inline constexpr std::chrono::seconds kLeaveTimeout(5);

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// "mpi", "single", "store": names the rendezvous method in the log.
  virtual std::string description() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// In an elastic job the number of this world, from 1. 0 elsewhere, and in the world of one in
  /// which a new process waits for the others.
  virtual int generation() const { return 0; }

  /// Collective: every rank gives a blob under the same phase name and gets the blobs of all, by
  /// rank. kTimeout names the phase and, if known, the missing ranks.
  virtual Result<std::vector<std::string>> exchange(std::string_view phase, std::string blob,
                                                    Deadline deadline) = 0;

  /// Called when this rank fails in init, before it closes its links. If it lost another rank or a
  /// link, or waited too long, it tells the others. Returns the meeting's first failure: of several
  /// ranks only the first saw the culprit, the others saw each other leave. All other errors come
  /// back unchanged, and so do all errors where the rendezvous method cannot report failures.
  virtual Error give_up(Error why) { return why; }

  /// Called after init, whether this rank has met the others or not (`met`). If this process serves
  /// the meeting for others, it waits until they have left or until the deadline.
  virtual void leave([[maybe_unused]] bool met, [[maybe_unused]] Deadline deadline) {}

  /// At orderly process exit (MPI_Finalize if kolo initialised MPI).
  virtual void finalize() {}
  /// Replaces finalize() after a failure: needs no other rank, since some may be gone.
  virtual void finalize_alone() {}
};

}  // namespace kolo
