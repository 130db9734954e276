#include "runtime/negotiation/control_tree.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// Appends `pieces` runs of items, of lengths that differ by one at most. Item i begins at
/// starts[i] and ends where the next one begins; the last of `starts` is an end.
void append_runs(const std::vector<int>& starts, std::size_t pieces, std::vector<Places>& runs) {
  const std::size_t items = starts.size() - 1;
  pieces = std::min(pieces, items);
  for (std::size_t i = 0; i < pieces; ++i) {
    const int begin = starts[i * items / pieces];
    runs.push_back({begin, starts[(i + 1) * items / pieces] - begin});
  }
}

/// The parts below the first rank of `whole`. All are positions in the order by hosts.
std::vector<Places> parts_of(Places whole, const std::vector<int>& hosts, std::size_t degree) {
  const int begin = whole.first + 1;
  const int end = whole.first + whole.count;
  std::vector<Places> parts;
  std::vector<int> neighbours;  // the ranks on the first one's host
  std::vector<int> others;      // the first ranks of other hosts
  const auto host = [&](int at) { return hosts[static_cast<std::size_t>(at)]; };
  for (int at = begin; at < end; ++at) {
    if (host(at) == host(whole.first)) {
      neighbours.push_back(at);
    } else if (host(at) != host(at - 1)) {
      others.push_back(at);
    }
  }
  if (degree == 1 && !neighbours.empty()) return {{begin, end - begin}};
  std::size_t near = degree;
  if (!others.empty()) {
    const std::size_t share = degree * neighbours.size() / static_cast<std::size_t>(end - begin);
    near = neighbours.empty() ? 0 : std::clamp<std::size_t>(share, 1, degree - 1);
  }
  if (!neighbours.empty()) {
    neighbours.push_back(neighbours.back() + 1);
    append_runs(neighbours, near, parts);
  }
  if (!others.empty()) {
    others.push_back(end);
    append_runs(others, degree - near, parts);
  }
  return parts;
}

}  // namespace

ControlTree::ControlTree(const Communicator& communicator, int degree) {
  const int rank = communicator.rank();
  const int all = communicator.size();
  if (rank < 0) return;
  size_ = rank == 0 ? all : 1;
  own_ = rank;
  if (all - 1 <= degree) {
    if (rank > 0) parent_ = 0;
    for (int child = 1; child < size_; ++child) children_.push_back(child);
    return;
  }
  const HostLayout layout = communicator.world().layout_of(communicator.ranks());
  std::vector<int> order;  // those of a host are neighbours, and rank 0 is first
  std::vector<int> hosts;  // by position in `order`
  for (int host = 0; host < layout.hosts(); ++host) {
    const std::vector<int>& members = layout.members(host);
    order.insert(order.end(), members.begin(), members.end());
    hosts.insert(hosts.end(), members.size(), host);
  }
  const auto at = static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin());
  Places whole{0, all};
  std::vector<Places> parts;
  while (true) {
    parts = parts_of(whole, hosts, static_cast<std::size_t>(degree));
    if (whole.first == at) break;
    parent_ = order[static_cast<std::size_t>(whole.first)];
    whole = *std::find_if(parts.begin(), parts.end(), [at](const Places& part) {
      return at >= part.first && at < part.first + part.count;
    });
  }
  size_ = whole.count;
  for (const Places& part : parts) {
    children_.push_back(order[static_cast<std::size_t>(part.first)]);
    parts_.push_back({part.first - at, part.count});
  }
  ranks_.assign(order.begin() + at, order.begin() + at + size_);
  for (int place = 0; place < size_; ++place)
    places_.emplace_back(ranks_[static_cast<std::size_t>(place)], place);
  std::sort(places_.begin(), places_.end());
}

std::optional<Places> ControlTree::below(int child) const {
  if (ranks_.empty())
    return child > 0 && child < size_ ? std::optional(Places{child}) : std::nullopt;
  const auto it = std::find(children_.begin(), children_.end(), child);
  if (it == children_.end()) return std::nullopt;
  return parts_[static_cast<std::size_t>(it - children_.begin())];
}

int ControlTree::rank_at(int place) const {
  return ranks_.empty() ? own_ + place : ranks_[static_cast<std::size_t>(place)];
}

std::optional<int> ControlTree::place_of(int rank) const {
  if (ranks_.empty())
    return rank >= own_ && rank < own_ + size_ ? std::optional(rank - own_) : std::nullopt;
  const auto it = std::lower_bound(places_.begin(), places_.end(), std::pair(rank, 0));
  if (it == places_.end() || it->first != rank) return std::nullopt;
  return it->second;
}

}  // namespace kolo
