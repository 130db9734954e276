// The processor time that this process's control groups (containers) allow. The number of cores
// alone does not tell it. Any thread.
#pragma once

#include "runtime/base/control_groups.h"

#include <optional>
#include <string>

namespace kolo {

struct CpuLimit {
  double cores = 0;   ///< average number of cores in use, such as 2.5
  std::string group;  ///< the limiting control group; the same text for all of its processes
};

/// The least limit of this process's control group and of all that contain it, from cpu.max
/// (version 2) or cpu.cfs_quota_us (version 1). Nothing if there is no limit or none can be read.
/// The paths are for tests.
std::optional<CpuLimit> cpu_limit(const ControlGroupPaths& groups = {});

/// The part of `cores` that the limit lets this process use; at least 1.
int cores_within_limit(int cores);

}  // namespace kolo
