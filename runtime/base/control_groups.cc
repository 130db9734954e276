#include "runtime/base/control_groups.h"

#include <fstream>

namespace kolo {
namespace {

/// Whether `wanted` is in `controllers`, such as "cpuset,cpu": controllers that share a hierarchy.
bool has_controller(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const auto comma = controllers.find(',');
    if (controllers.substr(0, comma) == wanted) return true;
    controllers.remove_prefix(comma == controllers.npos ? controllers.size() : comma + 1);
  }
  return false;
}

}  // namespace

std::vector<std::string> control_groups(std::string_view controller,
                                        const ControlGroupPaths& paths) {
  std::vector<std::string> folders;
  std::ifstream groups(paths.of_process);
  // Lines are "0::/a/b" in version 2 and "3:cpu,cpuacct:/a/b" in version 1.
  for (std::string line; std::getline(groups, line);) {
    const auto name = line.find(':') + 1;
    const auto path = line.find(':', name) + 1;
    if (name == 0 || path == 0) continue;
    const std::string controllers = line.substr(name, path - 1 - name);
    if (!controllers.empty() && !has_controller(controllers, controller)) continue;
    // Inside a container the mount may be the process's own group, and the path (as seen from
    // outside) does not exist below the mount. So the mount itself is listed, too.
    for (const std::string& mount :
         controllers.empty() ? std::vector{paths.mounts, paths.mounts + "/unified"}
                             : std::vector{paths.mounts + "/" + controllers,
                                           paths.mounts + "/" + std::string(controller)}) {
      std::string group = line.substr(path);
      while (group.ends_with('/')) group.pop_back();
      for (; group.starts_with('/'); group.erase(group.rfind('/')))
        folders.push_back(mount + group);
      folders.push_back(mount);
    }
  }
  return folders;
}

}  // namespace kolo
