#include "runtime/topology/cpu_limit.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace kolo {
namespace {

/// Identifies a control group, wherever its folder is mounted.
std::string identity_of(const std::string& folder) {
  struct stat status = {};
  ::stat(folder.c_str(), &status);
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

/// The limit of one group; nothing if the file is missing or says "max" or -1.
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

}  // namespace

std::optional<CpuLimit> cpu_limit(const ControlGroupPaths& groups) {
  std::optional<CpuLimit> least;
  for (const std::string& folder : control_groups("cpu", groups)) {
    auto limit = limit_in(folder);
    if (limit && (!least || limit->cores < least->cores)) least = std::move(limit);
  }
  return least;
}

int cores_within_limit(int cores) {
  const auto limit = cpu_limit();
  return limit && limit->cores < cores ? std::max(1, static_cast<int>(limit->cores)) : cores;
}

}  // namespace kolo
