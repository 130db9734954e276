// ProcessWatch: notices at once when the process of a rank on this host ends, by pidfd. Owned by
// the cycle; token holder only.
#pragma once

#include "runtime/base/log.h"
#include "runtime/base/unique_handle.h"
#include "runtime/topology/world.h"

#include <map>
#include <vector>

namespace kolo {

class ProcessWatch {
 public:
  /// Watches the other ranks whose pids mean something here. Without pidfd (Linux before 5.3, some
  /// sandboxes) it watches nobody, and says so at debug level.
  ProcessWatch(const World& world, const Log& log);

  /// Readable while exited() has something to tell: one for all processes, so that waiting costs
  /// the same however many they are. Below zero once nobody is watched; changes only within
  /// exited().
  int descriptor() const { return pidfds_.empty() ? -1 : any_.get(); }

  /// The ranks whose processes have ended since the last call; they are watched no longer.
  std::vector<int> exited();

 private:
  bool add(int rank, UniqueDescriptor pidfd);

  UniqueDescriptor any_;                    ///< an epoll of all pidfds
  std::map<int, UniqueDescriptor> pidfds_;  ///< by rank
};

}  // namespace kolo
