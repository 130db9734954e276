// ProcessWatch: uses pidfds to notice at once when the process of a rank on this host ends. Owned
// by the cycle; token holder only.
#pragma once

#include "runtime/base/log.h"
#include "runtime/base/unique_handle.h"
#include "runtime/topology/world.h"

#include <map>
#include <vector>

namespace kolo {

class ProcessWatch {
 public:
  /// Watches the other ranks in this pid namespace. Without pidfd (Linux before 5.3, some
  /// sandboxes) it watches nobody, and says so at debug level.
  ProcessWatch(const World& world, const Log& log);

  /// Readable while exited() has something to return. One descriptor stands for all processes, so
  /// the cost of waiting does not depend on their number. Negative once no process is watched.
  /// Changes only inside exited().
  int descriptor() const { return pidfds_.empty() ? -1 : any_.get(); }

  /// The ranks whose processes have ended since the last call. They are no longer watched.
  std::vector<int> exited();

 private:
  bool add(int rank, UniqueDescriptor pidfd);

  UniqueDescriptor any_;                    ///< an epoll over all pidfds
  std::map<int, UniqueDescriptor> pidfds_;  ///< by rank
};

}  // namespace kolo
