// The control groups (cgroups) that limit this process, as containers use them. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// Paths of the kernel's files. Tests replace them.
struct ControlGroupPaths {
  std::string of_process = "/proc/self/cgroup";
  std::string mounts = "/sys/fs/cgroup";
};

/// Folders of this process's group and of every group that contains it, up to the root. Covers
/// version 2 and version 1's hierarchy for `controller`, such as "cpu". Some may not exist.
std::vector<std::string> control_groups(std::string_view controller,
                                        const ControlGroupPaths& paths);

}  // namespace kolo
