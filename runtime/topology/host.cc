#include "runtime/topology/host.h"

#include "runtime/base/unique_handle.h"

#include <hwloc.h>
#include <unistd.h>

#include <algorithm>

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

}  // namespace

int usable_cores() {
  const int fallback = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return fallback;
  const UniqueHandle<TopologyTraits> topology(raw);
  if (hwloc_topology_load(raw) != 0) return fallback;
  const UniqueHandle<BitmapTraits> mine(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(raw, mine.get(), HWLOC_CPUBIND_PROCESS) != 0) return fallback;
  int cores = 0;
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_CORE, core)) != nullptr;) {
    if (hwloc_bitmap_intersects(core->cpuset, mine.get()) != 0) ++cores;
  }
  return cores > 0 ? cores : fallback;
}

}  // namespace kolo
