#include "runtime/collectives/host_layout.h"

#include <algorithm>
#include <map>

namespace kolo {

HostLayout::HostLayout(std::span<const int> host_of) {
  auto data = std::make_shared<Data>();
  std::map<int, int> number_of;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto next = static_cast<int>(data->members.size());
    const int host = number_of.emplace(host_of[rank], next).first->second;
    if (host == next) data->members.emplace_back();
    data->host_of.push_back(host);
    data->members[static_cast<std::size_t>(host)].push_back(static_cast<int>(rank));
  }
  data_ = std::move(data);
}

int HostLayout::most_on_a_host() const {
  std::size_t most = 0;
  for (int host = 0; host < hosts(); ++host) most = std::max(most, members(host).size());
  return static_cast<int>(most);
}

int HostLayout::ring_crossings() const {
  int most = 0;
  for (int host = 0; host < hosts(); ++host) {
    const std::vector<int>& ranks = members(host);
    const auto leaves = [&](int rank) { return host_of(rank) != host_of((rank + 1) % size()); };
    most = std::max(most, static_cast<int>(std::count_if(ranks.begin(), ranks.end(), leaves)));
  }
  return most;
}

}  // namespace kolo
