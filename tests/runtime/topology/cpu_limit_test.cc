// Control groups as files say them: both versions, hierarchies, and files without a limit.
#include "runtime/topology/cpu_limit.h"

#include "tests/support/control_group_files.h"

#include <optional>
#include <string>

namespace kolo::cpu_limit_test {
namespace {

class CpuLimits : public test::ControlGroupFiles {
 protected:
  std::optional<double> limit() const {
    const auto limit = cpu_limit(paths());
    return limit ? std::optional(limit->cores) : std::nullopt;
  }
  std::string group() const { return cpu_limit(paths())->group; }
};

TEST_F(CpuLimits, TheLeastOfAGroupAndThoseThatHoldIt) {
  write("self", "0::/pods/one/worker\n");
  EXPECT_FALSE(limit());
  write("mount/pods/one/worker/cpu.max", "max 100000\n");
  EXPECT_FALSE(limit());
  write("mount/pods/one/cpu.max", "250000 100000\n");
  EXPECT_EQ(limit(), 2.5);
  write("mount/pods/cpu.max", "400000 100000\n");
  EXPECT_EQ(limit(), 2.5);
  const std::string of_one = group();
  write("self", "0::/pods/one\n");
  EXPECT_EQ(group(), of_one) << "the worker shares it with the others there";
  write("mount/cpu.max", "50000 100000\n");
  EXPECT_EQ(limit(), 0.5);
  EXPECT_NE(group(), of_one);
}

TEST_F(CpuLimits, OfVersionOne) {
  write("self", "5:cpuset:/a\n4:cpu,cpuacct:/a\n0::/\n");
  write("mount/cpuset/a/cpu.cfs_quota_us", "100000\n");
  write("mount/cpuset/a/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(limit());
  write("mount/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  write("mount/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(limit());
  write("mount/cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(limit(), 3.0);
}

TEST_F(CpuLimits, InAContainerWhoseGroupIsNamedFromOutside) {
  write("self", "0::/../../pods/one\n");
  write("mount/cpu.max", "200000 100000\n");
  EXPECT_EQ(limit(), 2.0);
}

TEST_F(CpuLimits, WhatIsNotThereIsNoLimit) {
  EXPECT_FALSE(limit());
  write("self", "nonsense\n0:\n\n");
  EXPECT_FALSE(limit());
  EXPECT_EQ(cores_within_limit(1), 1);
}

}  // namespace
}  // namespace kolo::cpu_limit_test
