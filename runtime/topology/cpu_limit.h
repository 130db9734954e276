// How much processor time this process's control groups allow, as containers are limited by: cores
// alone do not tell it. Any thread.
#pragma once

#include "runtime/base/control_groups.h"

#include <optional>
#include <string>

namespace kolo {

struct CpuLimit {
  double cores = 0;   ///< that may be used at once for long, 2.5 say
  std::string group;  ///< which control group it is of: the same text for all of a machine
};

/// The least of this process's control group and of those that hold it, by cpu.max (version 2) or
/// cpu.cfs_quota_us (version 1). Nothing: no limit, or none that can be read. The paths are for
/// tests.
std::optional<CpuLimit> cpu_limit(const ControlGroupPaths& groups = {});

/// Of `cores` that this process may run on, as many as its limit lets it use; at least 1.
int cores_within_limit(int cores);

}  // namespace kolo
