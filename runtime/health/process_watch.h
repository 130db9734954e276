// ProcessWatch: notices at once when the process of a rank on this host ends, by pidfd. Owned by
// the cycle; token holder only.
#pragma once

#include "runtime/base/log.h"
#include "runtime/base/unique_handle.h"
#include "runtime/topology/world.h"

#include <vector>

namespace kolo {

class ProcessWatch {
 public:
  /// Watches the other ranks whose pids mean something here. Without pidfd (Linux before 5.3, some
  /// sandboxes) it watches nobody, and says so at debug level.
  ProcessWatch(const World& world, const Log& log);

  /// Become readable when a process ends. Changes only within exited().
  const std::vector<int>& descriptors() const { return descriptors_; }

  /// The ranks whose processes have ended since the last call; they are watched no longer.
  std::vector<int> exited();

 private:
  struct Watched {
    int rank;
    UniqueDescriptor pidfd;
  };
  void list_descriptors();

  std::vector<Watched> watched_;
  std::vector<int> descriptors_;
};

}  // namespace kolo
