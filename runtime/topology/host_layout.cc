#include "runtime/topology/host_layout.h"

#include "runtime/base/rounding.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace kolo {

HostLayout::HostLayout(std::span<const int> host_of, std::span<const int> numa_nodes) {
  auto data = std::make_shared<Data>();
  std::map<int, int> number_of;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto next = static_cast<int>(data->members.size());
    const int host = number_of.emplace(host_of[rank], next).first->second;
    if (host == next) data->members.emplace_back();
    data->host_of.push_back(host);
    data->members[static_cast<std::size_t>(host)].push_back(static_cast<int>(rank));
  }
  int least = static_cast<int>(host_of.size());
  for (const auto& ranks : data->members) {
    const int here = static_cast<int>(ranks.size());
    data->most = std::max(data->most, here);
    least = std::min(least, here);
    data->order.insert(data->order.end(), ranks.begin(), ranks.end());
  }
  // The first rank of the smallest host carries the most parts.
  for (const auto& ranks : data->members)
    data->most_carried += ceil_div(static_cast<int>(ranks.size()), least);
  const auto key = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return std::tuple(data->host_of[r], r < numa_nodes.size() ? numa_nodes[r] : 0, rank);
  };
  std::sort(data->order.begin(), data->order.end(), [&](int a, int b) { return key(a) < key(b); });
  data->in_order = std::is_sorted(data->order.begin(), data->order.end());
  data_ = std::move(data);
}

}  // namespace kolo
