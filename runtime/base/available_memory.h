// How much memory this process can take before the kernel kills a process for lack of memory. Any
// thread.
#pragma once

#include "runtime/base/control_groups.h"

#include <cstddef>
#include <string>

namespace kolo {

/// Bytes: the least of what the kernel can spare on this host and what the control groups allow.
/// The groups are that of this process and all that contain it, with memory.max (version 2) or
/// memory.limit_in_bytes (version 1), minus usage that cannot be reclaimed at once. SIZE_MAX if no
/// file tells. The paths are for tests.
std::size_t available_memory(const std::string& of_host = "/proc/meminfo",
                             const ControlGroupPaths& groups = {});

}  // namespace kolo
