// Bootstrap: the way in. It tells a process its rank and lets all ranks exchange small blobs, until
// the transport stands; after that it is not called again. Implementations: a world of one, MPI,
// and any Store (StoreBootstrap). Used by the thread that calls init.
#pragma once

#include "runtime/base/deadline.h"

#include <kolo/error.h>

#include <string>
#include <string_view>
#include <vector>

namespace kolo {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// "mpi", "single", "store": for the line that says which way was taken.
  virtual std::string description() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Collective: every rank gives a blob under the same phase name and gets all of them by rank.
  /// kTimeout names the phase and, where they are known, the ranks that are missing.
  virtual Result<std::vector<std::string>> exchange(std::string_view phase, std::string blob,
                                                    Deadline deadline) = 0;

  /// This rank fails in init, and its links have not gone yet. It tells the others of another rank
  /// that it has lost, or a link, or waited for too long, and returns what the meeting has failed
  /// for: of several ranks the first saw the culprit, the others saw one another go. All else, and
  /// where ranks meet by what tells no failures, comes back as it is.
  virtual Error give_up(Error why) { return why; }

  /// After init: this rank has met the others, or (`met` false) has failed to. A way in that this
  /// process serves for others waits until they have left, until the deadline.
  virtual void leave([[maybe_unused]] bool met, [[maybe_unused]] Deadline deadline) {}

  /// At orderly process exit (MPI_Finalize if kolo initialised MPI).
  virtual void finalize() {}
  /// Instead of it after a failure: what needs no other rank, for some may be gone.
  virtual void finalize_alone() {}
};

}  // namespace kolo
