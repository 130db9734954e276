// The NUMA node of a binding, on synthetic machines of hwloc.
#include "runtime/topology/host.h"

#include <gtest/gtest.h>

#include <vector>

namespace kolo::numa_test {
namespace {

// Two packages of two NUMA nodes of four cores of two hardware threads.
constexpr const char* kMachine = "package:2 numa:2 core:4 pu:2";

TEST(NumaNode, IsTheOneThatAllCoresBelongTo) {
  EXPECT_EQ(location_on_machine(kMachine, "0-1").numa_node, 0);
  EXPECT_EQ(location_on_machine(kMachine, "8-15").numa_node, 1);
  EXPECT_EQ(location_on_machine(kMachine, "18").numa_node, 2);
  EXPECT_EQ(location_on_machine(kMachine, "24-31").numa_node, 3);
  EXPECT_EQ(location_on_machine(kMachine, "24-31").cores, (std::vector<int>{24, 26, 28, 30}));
}

TEST(NumaNode, OfSeveralIsNone) {
  EXPECT_EQ(location_on_machine(kMachine, "8-23").numa_node, 0);
  EXPECT_EQ(location_on_machine(kMachine, "16-31").numa_node, 0);
  EXPECT_EQ(location_on_machine(kMachine, "0-31").numa_node, 0);
}

// A machine may number its hardware threads across its nodes; what counts is where they are.
TEST(NumaNode, FollowsTheMachineNotTheNumbers) {
  const char* const machine = "numa:2 core:2 pu:1(indexes=0,2,1,3)";
  EXPECT_EQ(location_on_machine(machine, "2").numa_node, 0);
  EXPECT_EQ(location_on_machine(machine, "1").numa_node, 1);
}

TEST(NumaNode, OfThisMachineIsKnownOrNone) { EXPECT_GE(location_on_host().numa_node, 0); }

}  // namespace
}  // namespace kolo::numa_test
