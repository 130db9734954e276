// Which control groups this process is in, as containers are limited by. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// Where tests put files in place of the kernel's.
struct ControlGroupPaths {
  std::string of_process = "/proc/self/cgroup";
  std::string mounts = "/sys/fs/cgroup";
};

/// Folders of this process's group and of those that hold it, up to the root: of version 2, and of
/// version 1's hierarchy with this controller ("cpu"). Some of them may not be there.
std::vector<std::string> control_groups(std::string_view controller,
                                        const ControlGroupPaths& paths);

}  // namespace kolo
