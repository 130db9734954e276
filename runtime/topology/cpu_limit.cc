#include "runtime/topology/cpu_limit.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// Of a control group's folder, wherever it is mounted.
std::string identity_of(const std::string& folder) {
  struct stat status = {};
  ::stat(folder.c_str(), &status);
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

/// Of one group; nothing where the file is not there, or says "max" or -1.
std::optional<CpuLimit> limit_in(const std::string& folder) {
  double quota = 0;
  double period = 0;
  std::ifstream both(folder + "/cpu.max");
  if (!(both >> quota >> period)) {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  if (!(quota > 0 && period > 0)) return std::nullopt;
  return CpuLimit{quota / period, identity_of(folder)};
}

void take_less(std::optional<CpuLimit>& least, std::optional<CpuLimit> other) {
  if (other && (!least || other->cores < least->cores)) least = std::move(other);
}

/// "cpu" or "cpuset,cpu": the controllers that have a hierarchy in common.
bool has_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const auto comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(comma == controllers.npos ? controllers.size() : comma + 1);
  }
  return false;
}

}  // namespace

std::optional<CpuLimit> cpu_limit(const std::string& groups_of_process, const std::string& mounts) {
  std::optional<CpuLimit> least;
  std::ifstream groups(groups_of_process);
  // "0::/a/b" of version 2, "3:cpu,cpuacct:/a/b" of version 1.
  for (std::string line; std::getline(groups, line);) {
    const auto name = line.find(':') + 1;
    const auto path = line.find(':', name) + 1;
    if (name == 0 || path == 0) continue;
    const std::string controllers = line.substr(name, path - 1 - name);
    if (!controllers.empty() && !has_cpu(controllers)) continue;
    // In a container, the mount may be of its own group, whose path from outside is not below it.
    for (const std::string& mount :
         controllers.empty() ? std::vector{mounts, mounts + "/unified"}
                             : std::vector{mounts + "/" + controllers, mounts + "/cpu"}) {
      std::string group = line.substr(path);
      while (group.ends_with('/')) group.pop_back();
      for (; group.starts_with('/'); group.erase(group.rfind('/')))
        take_less(least, limit_in(mount + group));
      take_less(least, limit_in(mount));
    }
  }
  return least;
}

int cores_within_limit(int cores) {
  const auto limit = cpu_limit();
  return limit && limit->cores < cores ? std::max(1, static_cast<int>(limit->cores)) : cores;
}

}  // namespace kolo
