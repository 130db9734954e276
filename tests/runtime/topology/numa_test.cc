// Which NUMA node a binding belongs to, on machines of hwloc's imagination.
#include "runtime/topology/host.h"

#include <gtest/gtest.h>
#include <hwloc.h>

#include <string>

namespace kolo {
namespace {

/// What a thread that is bound to these hardware threads would say on such a machine.
HostPlace place_on(const std::string& machine, const std::string& hardware_threads) {
  hwloc_topology_t topology = nullptr;
  EXPECT_EQ(hwloc_topology_init(&topology), 0);
  EXPECT_EQ(hwloc_topology_set_synthetic(topology, machine.c_str()), 0);
  EXPECT_EQ(hwloc_topology_load(topology), 0);
  hwloc_bitmap_t bound_to = hwloc_bitmap_alloc();
  EXPECT_EQ(hwloc_bitmap_list_sscanf(bound_to, hardware_threads.c_str()), 0);
  HostPlace place = place_in(topology, bound_to);
  hwloc_bitmap_free(bound_to);
  hwloc_topology_destroy(topology);
  return place;
}

// Two packages of two NUMA nodes of four cores of two hardware threads.
constexpr const char* kMachine = "package:2 numa:2 core:4 pu:2";

TEST(NumaNode, IsTheOneThatAllCoresBelongTo) {
  EXPECT_EQ(place_on(kMachine, "0-1").numa_node, 0);
  EXPECT_EQ(place_on(kMachine, "8-15").numa_node, 1);
  EXPECT_EQ(place_on(kMachine, "18").numa_node, 2);
  EXPECT_EQ(place_on(kMachine, "24-31").numa_node, 3);
  EXPECT_EQ(place_on(kMachine, "24-31").cores, (std::vector<int>{24, 26, 28, 30}));
}

TEST(NumaNode, OfSeveralIsNone) {
  EXPECT_EQ(place_on(kMachine, "8-23").numa_node, 0);
  EXPECT_EQ(place_on(kMachine, "16-31").numa_node, 0);
  EXPECT_EQ(place_on(kMachine, "0-31").numa_node, 0);
}

// A machine may number its hardware threads across its nodes; what counts is where they are.
TEST(NumaNode, FollowsTheMachineNotTheNumbers) {
  const char* const machine = "numa:2 core:2 pu:1(indexes=0,2,1,3)";
  EXPECT_EQ(place_on(machine, "2").numa_node, 0);
  EXPECT_EQ(place_on(machine, "1").numa_node, 1);
}

TEST(NumaNode, OfThisMachineIsKnownOrNone) { EXPECT_GE(place_on_host().numa_node, 0); }

}  // namespace
}  // namespace kolo
