#include "runtime/topology/world.h"

#include "runtime/base/blob.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <set>

namespace kolo {
namespace {

/// "4026531839": two processes share a namespace if their links have the same inode.
std::string namespace_of_process(const char* link) {
  struct stat status = {};
  return ::stat(link, &status) == 0 ? std::to_string(status.st_ino) : "unknown";
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

std::string RankInfo::serialize() const {
  return join_fields({host_id, hostname, std::to_string(pid), pid_namespace});
}

bool parse_rank_info(const std::string& bytes, RankInfo& info) {
  std::vector<std::string> fields;
  if (!split_fields(bytes, fields) || fields.size() != 4) return false;
  const std::string& pid = fields[2];
  const auto [rest, error] = std::from_chars(pid.data(), pid.data() + pid.size(), info.pid);
  if (error != std::errc() || rest != pid.data() + pid.size()) return false;
  info.host_id = fields[0];
  info.hostname = fields[1];
  info.pid_namespace = fields[3];
  return true;
}

RankInfo describe_this_process(const std::string& host_id_override) {
  RankInfo info;
  info.hostname = host_name();
  info.pid = ::getpid();
  info.pid_namespace = boot_id() + "/" + namespace_of_process("/proc/self/ns/pid");
  // Shared memory reaches as far as the kernel and the IPC namespace do, whatever hosts are called.
  info.host_id = host_id_override.empty()
                     ? boot_id() + "/" + namespace_of_process("/proc/self/ns/ipc")
                     : host_id_override;
  return info;
}

World::World(int rank, std::vector<RankInfo> ranks) : rank_(rank), ranks_(std::move(ranks)) {
  std::map<std::string, std::vector<int>> by_host;
  for (int r = 0; r < size(); ++r) by_host[ranks_[static_cast<std::size_t>(r)].host_id].push_back(r);

  const auto& mine = by_host.at(info(rank_).host_id);
  local_size_ = static_cast<int>(mine.size());
  local_rank_ = static_cast<int>(std::find(mine.begin(), mine.end(), rank_) - mine.begin());

  // The hosts that have a rank of my local rank, in the order of their lowest rank.
  std::set<int> lowest;
  for (const auto& [host, members] : by_host) {
    if (members.size() > static_cast<std::size_t>(local_rank_)) lowest.insert(members.front());
  }
  cross_size_ = static_cast<int>(lowest.size());
  cross_rank_ = static_cast<int>(std::distance(lowest.begin(), lowest.find(mine.front())));
}

}  // namespace kolo
