#include "runtime/memory/plan_neighbours.h"

#include "runtime/communicator/communicator.h"
#include "runtime/memory/host_window.h"

#include <cstddef>

namespace kolo {

PlanNeighbours plan_neighbours(const HostWindow& window, const Communicator& communicator,
                               int partition) {
  const bool together =
      partition != HostWindow::kNoPartition && window.slot_bytes_everywhere(partition) > 0;
  const std::vector<int>& ranks = communicator.ranks();
  PlanNeighbours all{together ? communicator.world().layout_of(ranks) : HostLayout(ranks), {}};
  const std::vector<int>& members = all.nodes.members(all.nodes.host_of(communicator.rank()));
  if (members.size() == 1) return all;
  for (const int member : members) {
    const int rank = ranks[static_cast<std::size_t>(member)];
    all.lines.push_back(&control_segment_in(window.control_segment(rank, partition)).plan);
  }
  return all;
}

}  // namespace kolo
