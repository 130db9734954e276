// What this process may use of its host, by hwloc. Read once at init.
#pragma once

#include <vector>

namespace kolo {

struct HostPlace {
  /// The cores (not hardware threads) that the calling thread may run on, after cpusets and the
  /// launcher's binding, by numbers that mean the same to every process of the machine. Never
  /// empty.
  std::vector<int> cores;
  /// The NUMA node that all of them belong to, in the order in which hwloc finds them, so that
  /// those of one package are neighbours; 0 if they are of several, or if nothing is known.
  int numa_node = 0;
};

HostPlace place_on_host();
inline std::vector<int> usable_cores() { return place_on_host().cores; }

/// The same on a machine that is not there, for tests: hwloc's description of a synthetic topology,
/// and the list of hardware threads that the thread is bound to. No cores if hwloc takes neither.
HostPlace place_on_machine(const char* synthetic, const char* hardware_threads);

}  // namespace kolo
