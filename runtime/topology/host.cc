#include "runtime/topology/host.h"

#include "runtime/base/unique_handle.h"

#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace kolo {
namespace {

struct TopologyTraits {
  using Type = hwloc_topology_t;
  static constexpr Type invalid() { return nullptr; }
  static void close(Type topology) noexcept { hwloc_topology_destroy(topology); }
};

struct BitmapTraits {
  using Type = hwloc_bitmap_t;
  static constexpr Type invalid() { return nullptr; }
  static void close(Type bitmap) noexcept { hwloc_bitmap_free(bitmap); }
};

// Without hwloc's data, every hardware thread counts as a core.
HostLocation all_processors() {
  HostLocation location;
  location.cores.resize(static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))));
  std::iota(location.cores.begin(), location.cores.end(), 0);
  return location;
}

HostLocation location_in(hwloc_topology_t topology, hwloc_const_bitmap_t bound_to) {
  HostLocation location;
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
    // A core's number is that of its first hardware thread: hwloc's own numbers depend on the
    // cpuset, and the system's numbers repeat in each package.
    if (hwloc_bitmap_intersects(core->cpuset, bound_to) != 0)
      location.cores.push_back(hwloc_bitmap_first(core->complete_cpuset));
  }
  int touched = 0;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (hwloc_bitmap_intersects(node->cpuset, bound_to) == 0) continue;
    location.numa_node = touched++ == 0 ? static_cast<int>(node->logical_index) : 0;
  }
  return location;
}

/// Takes milliseconds; null if it fails.
UniqueHandle<TopologyTraits> load_host() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {};
  UniqueHandle<TopologyTraits> host(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) return {};
  return host;
}

}  // namespace

// Uses the binding of the calling thread, which the runtime's threads inherit.
HostLocation location_on_host() {
  static const UniqueHandle<TopologyTraits> host = load_host();
  if (!host) return all_processors();
  const UniqueHandle<BitmapTraits> mine(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(host.get(), mine.get(), HWLOC_CPUBIND_THREAD) != 0) return all_processors();
  HostLocation location = location_in(host.get(), mine.get());
  return location.cores.empty() ? all_processors() : location;
}

HostLocation location_on_machine(const char* synthetic, const char* hardware_threads) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {};
  const UniqueHandle<TopologyTraits> topology(raw);
  const UniqueHandle<BitmapTraits> bound_to(hwloc_bitmap_alloc());
  if (hwloc_topology_set_synthetic(raw, synthetic) != 0 || hwloc_topology_load(raw) != 0 ||
      hwloc_bitmap_list_sscanf(bound_to.get(), hardware_threads) != 0)
    return {};
  return location_in(raw, bound_to.get());
}

}  // namespace kolo
