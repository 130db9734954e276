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
  const std::vector<int>& hosts = data->host_of;
  for (const auto& ranks : data->members) {
    const auto leaves = [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      return hosts[r] != hosts[(r + 1) % hosts.size()];
    };
    const auto crossings = std::count_if(ranks.begin(), ranks.end(), leaves);
    data->most = std::max(data->most, static_cast<int>(ranks.size()));
    data->crossings = std::max(data->crossings, static_cast<int>(crossings));
  }
  data_ = std::move(data);
}

}  // namespace kolo
