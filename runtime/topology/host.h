// What this process may use of its host, by hwloc. Read once at init.
#pragma once

#include <vector>

namespace kolo {

/// The cores (not hardware threads) that the calling thread may run on, after cpusets and the
/// launcher's binding, by numbers that mean the same to every process of the machine. Never empty.
std::vector<int> usable_cores();

}  // namespace kolo
