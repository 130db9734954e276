#include "runtime/negotiation/count_dissemination.h"

#include "runtime/base/plain_bytes.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// Nodes that know the same after one round. More would take fewer rounds and more messages.
constexpr int kTogether = 4;

struct Payload {
  std::uint64_t plan;
  std::uint32_t link;
  std::uint32_t lists;
  std::uint32_t any_left;
  std::uint32_t all_left;
};

}  // namespace

std::vector<std::vector<int>> dissemination_rounds(int nodes) {
  std::vector<std::vector<int>> rounds;
  for (int apart = 1; apart < nodes; apart *= kTogether) {
    rounds.emplace_back();
    for (int distance = apart; distance < std::min(apart * kTogether, nodes); distance += apart)
      rounds.back().push_back(distance);
  }
  return rounds;
}

void CountDissemination::open(const HostLayout& nodes) {
  const int size = nodes.hosts();
  const int own = nodes.host_of(communicator_.rank());
  const auto leader = [&](int node) { return nodes.members(node % size).front(); };
  if (leader(own) != communicator_.rank()) return;
  for (const std::vector<int>& round : dissemination_rounds(size)) {
    for (const int distance : round)
      links_.push_back({.to = leader(own + distance), .from = leader(own + size - distance)});
    round_ends_.push_back(links_.size());
  }
}

void CountDissemination::begin() {
  ++plan_;
  node_ = {};
  for (Link& link : links_)
    link = {.to = link.to, .from = link.from, .received = std::exchange(link.early, {})};
}

Status CountDissemination::tell(const PlanCount& node) {
  if (node == node_) return {};
  node_ = node;
  return send();
}

Status CountDissemination::send() {
  PlanCount known = node_;
  std::size_t begin = 0;
  for (const std::size_t end : round_ends_) {
    for (std::size_t i = begin; i < end; ++i) {
      if (links_[i].sent == known) continue;
      links_[i].sent = known;
      ++messages_;
      const Payload payload{.plan = plan_,
                            .link = static_cast<std::uint32_t>(i),
                            .lists = known.lists,
                            .any_left = known.any_left,
                            .all_left = known.all_left};
      KOLO_TRY(control_plane_.send(links_[i].to, MessageKind::kCount, bytes_of(payload)));
    }
    for (; begin < end; ++begin) known.merge(links_[begin].received);
  }
  return {};
}

Status CountDissemination::hear(int peer, std::span<const std::byte> payload) {
  const auto heard = value_of<Payload>(payload);
  if (!heard || heard->link >= links_.size() || links_[heard->link].from != peer ||
      heard->plan < plan_ || heard->plan > plan_ + 1) {
    return KOLO_ERROR(kInternal, "rank {}: unexpected or malformed count of a plan from rank {}",
                      communicator_.rank(), peer);
  }
  Link& link = links_[heard->link];
  const PlanCount count{heard->lists, heard->any_left != 0, heard->all_left != 0};
  const bool is_early = heard->plan > plan_;
  (is_early ? link.early : link.received) = count;
  return is_early ? Status() : send();
}

PlanCount CountDissemination::elsewhere() const {
  PlanCount all = links_.front().received;
  for (const Link& link : links_) all.merge(link.received);
  return all;
}

std::vector<int> CountDissemination::behind() const {
  std::vector<int> ranks;
  for (const Link& link : links_)
    if (!link.received.all_left) ranks.push_back(link.from);
  return ranks;
}

}  // namespace kolo
