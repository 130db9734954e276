#include "bindings/torch/training/shard_copies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

namespace kolo {
namespace {

using Parts = std::vector<std::optional<PartCopy>>;

/// The first copy of each part, by backup.
std::map<BackupVersion, Parts> by_version(const std::vector<PartCopy>& copies) {
  std::map<BackupVersion, Parts> all;
  for (const PartCopy& copy : copies) {
    Parts& parts = all[copy.version];
    parts.resize(static_cast<std::size_t>(copy.version.parts));
    auto& first = parts.at(static_cast<std::size_t>(copy.part));
    if (!first) first = copy;
  }
  return all;
}

}  // namespace

std::vector<int> keepers_of(const std::vector<int>& hosts) {
  const std::size_t size = hosts.size();
  std::map<int, std::size_t> ranks_on;
  for (const int host : hosts) ++ranks_on[host];
  // Ranks of a host lie together, the largest host first. A shift by its size leaves every host.
  std::vector<int> order(size);
  std::iota(order.begin(), order.end(), 0);
  const auto place = [&](int rank) {
    const int host = hosts[static_cast<std::size_t>(rank)];
    return std::tuple(size - ranks_on[host], host, rank);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return place(a) < place(b); });
  const std::size_t largest = ranks_on[hosts[static_cast<std::size_t>(order.front())]];
  const std::size_t shift = largest == size ? 1 : largest;
  std::vector<int> keepers(size);
  for (std::size_t i = 0; i < size; ++i)
    keepers[static_cast<std::size_t>(order[i])] = order[(i + shift) % size];
  return keepers;
}

std::optional<WholeBackup> newest_whole(const std::vector<PartCopy>& copies) {
  const auto all = by_version(copies);
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const auto& [version, parts] = *it;
    const bool whole =
        std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.has_value(); });
    if (!whole) continue;
    WholeBackup backup{.version = version, .parts = {}};
    for (const auto& part : parts) backup.parts.push_back(*part);
    return backup;
  }
  return std::nullopt;
}

std::string parts_gone(const std::vector<PartCopy>& copies) {
  const auto all = by_version(copies);
  const auto& [version, parts] = *all.rbegin();
  std::vector<std::size_t> gone;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!parts[i]) gone.push_back(i);
  return fmt::format(
      "of the optimizer's state at step {} in world {} the part of rank {} of {} is gone, for that "
      "rank and the one that kept a copy were both lost",
      version.progress, version.generation, fmt::join(gone, " and of rank "), version.parts);
}

}  // namespace kolo
