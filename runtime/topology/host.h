// What this process may use of its host, according to hwloc. Read once at init.
#pragma once

#include <vector>

namespace kolo {

struct HostLocation {
  /// The cores (not hardware threads) that the calling thread may run on, after cpusets and the
  /// launcher's binding. The numbers mean the same to every process of the machine. Never empty.
  std::vector<int> cores;
  /// The NUMA node that all these cores belong to, numbered in hwloc's order, so that the nodes of
  /// one package are neighbours. 0 if the cores belong to several nodes, or if nothing is known.
  int numa_node = 0;
};

HostLocation location_on_host();
inline std::vector<int> usable_cores() { return location_on_host().cores; }

/// For tests: location_on_host() on a synthetic machine. `synthetic`: hwloc's description of it;
/// `hardware_threads`: the list that the thread is bound to. No cores if hwloc refuses either.
HostLocation location_on_machine(const char* synthetic, const char* hardware_threads);

}  // namespace kolo
