// Peers: whom this rank tells of its end, and how. In a world of more than kFewRanks ranks, a rank
// tells only those that are concerned: otherwise all ranks together would open a connection for
// each pair of them at the end of every job. That takes long, and UCX 1.13 can terminate processes
// over it. Member of Cycle; token holder only.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/cycle/group_registry.h"
#include "transport/transport.h"

#include <functional>
#include <string>
#include <vector>

namespace kolo {

inline constexpr int kFewRanks = Transport::kFewRanks;

class Peers {
 public:
  Peers(GroupRegistry& groups, Transport& transport) : groups_(groups), transport_(transport) {}

  /// Whether this rank and that rank of the world tell each other when they end.
  bool concerned(int rank) const;
  /// Makes that rank concerned() from now on.
  void open_link(int rank);
  /// Before the first step: opens a link to the next rank, so that one rank at least hears when
  /// this one goes silent, and in a large world one to rank 0, which hears when this rank ends.
  void open_first_links();
  /// Tells that rank that this one lives. Best effort: the transport reports ranks that cannot be
  /// reached.
  void beat(int rank);
  /// That rank of the world has sent its shutdown notice.
  bool has_left(int rank) const;

  /// Handles control messages that have arrived.
  void drain_control_messages();
  /// Sends each rank of the group that has not left, except the culprit, its own of `payloads`,
  /// which are by rank. Returns the first failure.
  Status tell_others(Group& group, MessageKind kind, const std::vector<std::string>& payloads,
                     int culprit);
  /// As tell_others(), but only to ranks of the world for which `hear` is true.
  Status tell(Group& group, MessageKind kind, const std::vector<std::string>& payloads, int culprit,
              const std::function<bool(int rank)>& hear);

 private:
  GroupRegistry& groups_;
  Transport& transport_;
};

}  // namespace kolo
