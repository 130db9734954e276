// PlaceSlots: whether operations of a process set may take slots of its place in the window. They
// need memory on every rank of the set, so each says on its board whether it has it, and no
// operation of the set begins before all have: what one rank cannot map, none maps. Held by Group,
// asked by the cycle and by Operation. Token holder only, but for open().
#pragma once

#include "runtime/base/log.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/host_window.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

class PlaceSlots {
 public:
  using Clock = std::chrono::steady_clock;

  /// `place`: of the window, or HostWindow::kNoPlace.
  PlaceSlots(const Communicator& communicator, HostWindow& window, int place, const Log& log);

  int place() const { return place_; }
  /// Once the windows are open: a process set's slots get memory, or not, and the others may see.
  void open();
  /// Whether all ranks have said what they have; true from then on.
  bool settled();
  /// Alike on all ranks. Precondition: settled().
  bool usable() const { return usable_; }

  /// The ranks of the world that have said nothing, and since when they might have.
  std::vector<int> silent() const;
  Clock::time_point opened_at() const { return opened_at_; }

 private:
  /// Whether a rank of the world has memory for the slots; nothing while it has not said so.
  std::optional<bool> said_by(int rank) const;

  const Communicator& communicator_;
  HostWindow& window_;
  const int place_;
  const Log& log_;
  Clock::time_point opened_at_;
  std::string lack_;  ///< why this rank has no memory for them
  bool settled_ = true;
  bool usable_ = false;
};

}  // namespace kolo
