// PlanNeighbours: which ranks of a process set read each other's part of a locked plan
// (LockedPlan), and where. They are the ranks of a host if all hosts have windows; else each rank
// is by itself.
#pragma once

#include "runtime/memory/control_segment.h"
#include "runtime/topology/host_layout.h"

#include <vector>

namespace kolo {

class Communicator;
class HostWindow;

struct PlanNeighbours {
  HostLayout nodes;              ///< with neighbours in the place of hosts; the same on every rank
  std::vector<PlanLine*> lines;  ///< this node's, ascending; none if this rank is by itself
};

/// Once the windows are open. `partition`: the set's.
PlanNeighbours plan_neighbours(const HostWindow& window, const Communicator& communicator,
                               int partition);

}  // namespace kolo
