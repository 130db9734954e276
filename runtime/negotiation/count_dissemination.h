// CountDissemination: how the nodes of a locked plan learn how far the others are. A node is ranks
// that read each other's counts in shared memory, or one rank by itself. The lowest rank of each
// node, its leader, sends what its node has counted to three other leaders, what these four have
// counted to three more, four nodes apart, and so on: after log₄ rounds it has gone to all.
// Counts only grow, so a newer one takes the place of an older one, and one that comes twice does
// no harm. (Dissemination barrier: Hensgen, Finkel, Manber, 1988; n-way: Hoefler et al., 2006.)
//
//   nodes 0 to 5:   round 1: i → i+1, i+2, i+3    round 2: i → i+4
//
// Progress token holder only; owned by the plan.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/topology/host_layout.h"

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo {

/// What some ranks have counted of a locked plan.
struct PlanCount {
  std::uint32_t lists = 0;  ///< each of them has counted so many, modulo 2^32
  bool any_left = false;    ///< one of them has made its count its last one
  bool all_left = false;    ///< all have

  /// Ranks are fewer than 2^31 lists apart.
  bool reaches(std::uint32_t count) const { return static_cast<std::int32_t>(lists - count) >= 0; }
  void merge(const PlanCount& other) {
    if (reaches(other.lists)) lists = other.lists;
    any_left |= other.any_left;
    all_left &= other.all_left;
  }
  bool operator==(const PlanCount&) const = default;
};

/// By round: how many nodes further the nodes are to which a node sends.
std::vector<std::vector<int>> dissemination_rounds(int nodes);

class CountDissemination {
 public:
  CountDissemination(const Communicator& communicator, ControlPlane& control_plane)
      : communicator_(communicator), control_plane_(control_plane) {}

  /// `nodes`: the nodes of the communicator; the same on every rank.
  void open(const HostLayout& nodes);
  /// Whether this rank speaks for its node to others.
  bool leads() const { return !links_.empty(); }
  /// The next plan. Plans are numbered alike on all ranks, from 1 on.
  void begin();
  /// The latest one; 0 before the first.
  std::uint64_t plan() const { return plan_; }

  // Precondition of what follows: leads().

  /// What this rank's node has counted.
  Status tell(const PlanCount& node);
  /// The last one.
  const PlanCount& told() const { return node_; }
  /// Handles a message of another leader. kInternal if it is malformed or unexpected.
  Status hear(int peer, std::span<const std::byte> payload);
  /// What all other nodes have counted.
  PlanCount elsewhere() const;
  /// Leaders whose counts are not last; each speaks for several nodes.
  std::vector<int> behind() const;

  std::uint64_t messages() const { return messages_; }

 private:
  struct Link {
    int to = 0;    ///< communicator's rank
    int from = 0;  ///< communicator's rank
    PlanCount sent;
    PlanCount received;
    PlanCount early;  ///< for the next plan, which this rank has not begun
  };
  Status send();

  const Communicator& communicator_;
  ControlPlane& control_plane_;
  std::vector<Link> links_;              ///< on every leader as many
  std::vector<std::size_t> round_ends_;  ///< indices of links
  std::uint64_t plan_ = 0;
  PlanCount node_;
  std::uint64_t messages_ = 0;
};

}  // namespace kolo
