// How much memory this process can take without anybody's harm: beyond that the kernel kills
// somebody. Any thread.
#pragma once

#include "runtime/base/control_groups.h"

#include <cstddef>
#include <string>

namespace kolo {

/// Bytes, by what the kernel thinks that the host has to spare, and by the limits of this process's
/// control group and of those that hold it: memory.max (version 2) or memory.limit_in_bytes
/// (version 1), less what is in use and cannot be reclaimed at once. SIZE_MAX where nothing says
/// it. The paths are for tests.
std::size_t available_memory(const std::string& of_host = "/proc/meminfo",
                             const ControlGroupPaths& groups = {});

}  // namespace kolo
