#include "runtime/topology/world.h"

#include "runtime/base/blob.h"
#include "runtime/topology/core_matching.h"
#include "runtime/topology/cpu_limit.h"
#include "runtime/topology/host.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

/// "4026531839": two processes share a namespace if their links have the same inode.
std::string namespace_of_process(const char* link) {
  struct stat status = {};
  return ::stat(link, &status) == 0 ? std::to_string(status.st_ino) : "unknown";
}

std::string host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// The running kernel's id, equal for all that share the kernel. Without /proc, the host name.
std::string kernel_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) && !id.empty() ? id : host_name();
}

bool parse_number(std::string_view text, int& number) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && rest == text.data() + text.size();
}

/// Appends the numbers of "4-10/2": 4, 6, 8, 10.
bool parse_range(std::string_view text, std::vector<int>& numbers) {
  constexpr int kMost = 1 << 16;
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (dash == text.npos || slash == text.npos || dash > slash) return false;
  int first = 0;
  int last = 0;
  int step = 0;
  if (!parse_number(text.substr(0, dash), first) ||
      !parse_number(text.substr(dash + 1, slash - dash - 1), last) ||
      !parse_number(text.substr(slash + 1), step) || first > last || last >= kMost || step < 1 ||
      step >= kMost)
    return false;
  for (int number = first; number <= last; number += step) numbers.push_back(number);
  return true;
}

}  // namespace

std::string RankInfo::serialize() const {
  std::vector<std::string> fields = {host_id,
                                     hostname,
                                     std::to_string(pid),
                                     pid_namespace,
                                     std::to_string(numa_node),
                                     cpu_group,
                                     std::to_string(cpu_cores)};
  for (std::size_t i = 0; i < cores.size();) {
    const int step = i + 1 < cores.size() ? std::max(cores[i + 1] - cores[i], 1) : 1;
    std::size_t end = i + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + step) ++end;
    fields.push_back(fmt::format("{}-{}/{}", cores[i], cores[end - 1], step));
    i = end;
  }
  return join_fields(fields);
}

bool parse_rank_info(const std::string& bytes, RankInfo& info) {
  constexpr std::size_t kFirstCore = 7;
  std::vector<std::string> fields;
  if (!split_fields(bytes, fields) || fields.size() < kFirstCore) return false;
  RankInfo parsed;
  parsed.host_id = std::move(fields[0]);
  parsed.hostname = std::move(fields[1]);
  parsed.pid_namespace = std::move(fields[3]);
  if (!parse_number(fields[2], parsed.pid)) return false;
  if (!parse_number(fields[4], parsed.numa_node)) return false;
  parsed.cpu_group = std::move(fields[5]);
  if (!parse_number(fields[6], parsed.cpu_cores)) return false;
  for (std::size_t i = kFirstCore; i < fields.size(); ++i) {
    if (!parse_range(fields[i], parsed.cores)) return false;
  }
  info = std::move(parsed);
  return true;
}

RankInfo describe_this_process(const std::string& host_id_override) {
  RankInfo info;
  info.hostname = host_name();
  info.pid = ::getpid();
  info.pid_namespace = kernel_id() + "/" + namespace_of_process("/proc/self/ns/pid");
  // Shared memory works within one kernel and one IPC namespace, whatever the hosts are called.
  info.host_id = host_id_override.empty()
                     ? kernel_id() + "/" + namespace_of_process("/proc/self/ns/ipc")
                     : host_id_override;
  HostLocation location = location_on_host();
  info.cores = std::move(location.cores);
  info.numa_node = location.numa_node;
  if (auto limit = cpu_limit()) {
    info.cpu_group = std::move(limit->group);
    info.cpu_cores = static_cast<int>(std::min(limit->cores, 1e6));
  }
  return info;
}

void impose_numa_nodes(std::vector<RankInfo>& ranks, int nodes) {
  std::map<std::string, std::vector<RankInfo*>> hosts;
  for (RankInfo& rank : ranks) hosts[rank.host_id].push_back(&rank);
  for (const auto& [host, members] : hosts)
    for (std::size_t i = 0; i < members.size(); ++i)
      members[i]->numa_node =
          static_cast<int>(i * static_cast<std::size_t>(nodes) / members.size());
}

World::World(int rank, std::vector<RankInfo> ranks) : rank_(rank) {
  const auto shared = std::make_shared<Shared>();
  const auto keep = [&](std::string& text) {
    return &*shared->texts.insert(std::move(text)).first;
  };
  ranks_.reserve(ranks.size());
  for (RankInfo& info : ranks)
    ranks_.push_back({.host_id = keep(info.host_id),
                      .hostname = keep(info.hostname),
                      .pid_namespace = keep(info.pid_namespace),
                      .cpu_group = keep(info.cpu_group),
                      .cores = &*shared->cores.insert(std::move(info.cores)).first,
                      .pid = info.pid,
                      .numa_node = info.numa_node,
                      .cpu_cores = info.cpu_cores});
  shared_ = shared;

  std::vector<int> all(ranks_.size());
  std::iota(all.begin(), all.end(), 0);
  layout_ = layout_of(all);

  const int host = layout_.host_of(rank_);
  const std::vector<int>& mine = layout_.members(host);
  local_size_ = static_cast<int>(mine.size());
  local_rank_ = static_cast<int>(std::find(mine.begin(), mine.end(), rank_) - mine.begin());
  cross_size_ = 0;
  for (int other = 0; other < layout_.hosts(); ++other) {
    if (other == host) cross_rank_ = cross_size_;
    if (static_cast<int>(layout_.members(other).size()) > local_rank_) ++cross_size_;
  }
}

RankInfo World::info(int rank) const {
  const Rank& of = at(rank);
  return {.host_id = *of.host_id,
          .hostname = *of.hostname,
          .pid = of.pid,
          .pid_namespace = *of.pid_namespace,
          .cores = *of.cores,
          .numa_node = of.numa_node,
          .cpu_group = *of.cpu_group,
          .cpu_cores = of.cpu_cores};
}

HostLayout World::layout_of(const std::vector<int>& ranks) const {
  std::map<const std::string*, int> numbers;  // equal texts are one
  std::vector<int> hosts;
  std::vector<int> numa_nodes;
  for (const int rank : ranks) {
    const auto next = static_cast<int>(numbers.size());
    hosts.push_back(numbers.emplace(at(rank).host_id, next).first->second);
    numa_nodes.push_back(at(rank).numa_node);
  }
  return HostLayout(hosts, numa_nodes);
}

HostLayout World::nodes_of(const std::vector<int>& ranks) const {
  std::vector<int> nodes;
  for (const int rank : ranks) nodes.push_back(at(rank).numa_node);
  return HostLayout(nodes);
}

bool World::has_core_for_each_rank(const std::vector<int>& of) const {
  std::set<const std::string*> hosts;
  std::set<const std::string*> pid_namespaces;
  for (const int rank : of) {
    hosts.insert(at(rank).host_id);
    pid_namespaces.insert(at(rank).pid_namespace);
  }
  std::vector<const std::vector<int>*> cores;
  std::map<const std::string*, int> left;  // cores that a control group has left
  for (const Rank& other : ranks_) {
    if (!hosts.contains(other.host_id) && !pid_namespaces.contains(other.pid_namespace)) continue;
    cores.push_back(other.cores);
    if (other.cpu_group->empty()) continue;
    if (left.try_emplace(other.cpu_group, other.cpu_cores).first->second-- == 0) return false;
  }
  return can_have_a_core_each(cores);
}

int World::cores_of(const std::vector<int>& ranks) const {
  std::set<int> cores;
  std::map<const std::string*, int> limits;  // by control group
  bool is_limited = true;
  for (const int rank : ranks) {
    const Rank& each = at(rank);
    cores.insert(each.cores->begin(), each.cores->end());
    limits.emplace(each.cpu_group, each.cpu_cores);
    is_limited &= !each.cpu_group->empty();
  }
  auto count = static_cast<int>(cores.size());
  if (is_limited) {
    const auto add = [](int sum, const auto& limit) { return sum + limit.second; };
    count = std::min(count, std::accumulate(limits.begin(), limits.end(), 0, add));
  }
  return std::max(count, 1);
}

}  // namespace kolo
