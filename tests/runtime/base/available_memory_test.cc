// Available memory of the host and of control groups of both versions, as files say it.
#include "runtime/base/available_memory.h"

#include "tests/support/control_group_files.h"

#include <cstdint>

namespace kolo {
namespace {

class AvailableMemory : public test::ControlGroupFiles {
 protected:
  std::size_t available() const { return available_memory(path_of("meminfo"), paths()); }
};

TEST_F(AvailableMemory, IsTheLeastOfTheHostAndOfAllGroups) {
  EXPECT_EQ(available(), SIZE_MAX) << "nothing says anything";
  write("meminfo", "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:  8000 kB\nCached: 1 kB\n");
  EXPECT_EQ(available(), 8000U << 10);
  write("self", "0::/pods/one\n");
  EXPECT_EQ(available(), 8000U << 10);
  write("mount/pods/one/memory.max", "max\n");
  write("mount/pods/one/memory.current", "500000\n");
  EXPECT_EQ(available(), 8000U << 10);
  write("mount/pods/memory.max", "2000000\n");
  write("mount/pods/memory.current", "500000\n");
  EXPECT_EQ(available(), 1500000U);
  write("mount/pods/one/memory.max", "600000\n");
  EXPECT_EQ(available(), 100000U);
}

TEST_F(AvailableMemory, FilesThatWereReadAreFree) {
  write("self", "0::/a\n");
  write("mount/a/memory.max", "600000\n");
  write("mount/a/memory.current", "500000\n");
  write("mount/a/memory.stat", "anon 100000\ninactive_file 300000\nactive_file 100000\n");
  EXPECT_EQ(available(), 500000U);
  write("mount/a/memory.stat", "inactive_file 500001\n");
  EXPECT_EQ(available(), 600000U);
}

TEST_F(AvailableMemory, OfVersionOne) {
  write("self", "9:cpu:/a\n4:memory:/a\n0::/\n");
  write("mount/cpu/a/memory.limit_in_bytes", "1\n");
  write("mount/cpu/a/memory.usage_in_bytes", "1\n");
  EXPECT_EQ(available(), SIZE_MAX);
  write("mount/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  write("mount/memory/a/memory.usage_in_bytes", "500000\n");
  EXPECT_EQ(available(), 9223372036854771712U - 500000U);
  write("mount/memory/a/memory.limit_in_bytes", "600000\n");
  write("mount/memory/a/memory.stat",
        "inactive_file 1\ntotal_inactive_file 200000\ntotal_active_file 1000\n");
  EXPECT_EQ(available(), 301000U);
}

TEST_F(AvailableMemory, AGroupThatIsFullLeavesNothing) {
  write("self", "0::/a\n");
  write("mount/a/memory.max", "500000\n");
  write("mount/a/memory.current", "600000\n");
  EXPECT_EQ(available(), 0U);
}

}  // namespace
}  // namespace kolo
