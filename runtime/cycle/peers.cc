#include "runtime/cycle/peers.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

constexpr int kDrainRounds = 1000;

}  // namespace

// In a large world, a rank that has neither sent a message to this one nor had one from it finds
// that this one has left when it connects, which it does before it waits for a message.
bool Peers::concerned(int rank) const {
  const World& world = groups_.world().communicator().world();
  if (world.size() <= kFewRanks || rank == 0 || world.same_host(rank, world.rank())) return true;
  const LinkActivity activity = transport_.activity(rank);
  if (activity.opened || activity.arrivals > 0) return true;
  const auto all = groups_.all();
  return std::any_of(all.begin(), all.end(), [rank](const auto& group) {
    const Communicator& set = group->communicator();
    return set.id() != 0 && set.size() <= kFewRanks && group->is_member() &&
           set.index_of(rank).has_value();
  });
}

void Peers::open_link(int rank) {
  if (!concerned(rank)) beat(rank);
}

void Peers::beat(int rank) {
  static_cast<void>(groups_.world().control_plane().send(rank, MessageKind::kBeat, {}));
}

void Peers::open_first_links() {
  const Communicator& world = groups_.world().communicator();
  const int next = (world.rank() + 1) % world.size();
  if (next != world.rank()) beat(next);
  if (world.size() > kFewRanks && world.rank() != 0 && next != 0) beat(0);
}

bool Peers::has_left(int rank) const { return groups_.world().departures().contains(rank); }

void Peers::drain_control_messages() {
  for (int i = 0; i < kDrainRounds && transport_.progress(); ++i) {
  }
}

Status Peers::tell_others(Group& group, MessageKind kind, const std::vector<std::string>& payloads,
                          int culprit) {
  return tell(group, kind, payloads, culprit, [](int) { return true; });
}

Status Peers::tell(Group& group, MessageKind kind, const std::vector<std::string>& payloads,
                   int culprit, const std::function<bool(int rank)>& hear) {
  Status first;
  const std::vector<int>& ranks = group.communicator().ranks();
  for (int i = 0; i < group.communicator().size(); ++i) {
    const int rank = ranks[static_cast<std::size_t>(i)];
    if (i == group.communicator().rank() || rank == culprit || !hear(rank)) continue;
    // A rank that has left cannot be connected to any more; its notice may just have arrived.
    drain_control_messages();
    if (has_left(rank)) continue;
    Status status = group.control_plane().send(i, kind, payloads[static_cast<std::size_t>(i)]);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace kolo
