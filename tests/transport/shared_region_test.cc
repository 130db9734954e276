// Shared memory that is reserved long before it is used: what the rest of the system is spared.
#include "transport/shared_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace kolo::test {
namespace {

/// The flags that the kernel has for the mapping that begins there.
std::string flags_at(const void* address) {
  std::ifstream file("/proc/self/smaps");
  bool is_found = false;
  for (std::string line; std::getline(file, line);) {
    if (line.find(" kB") == std::string::npos && line.find('-') < line.find(' '))
      is_found = std::stoull(line, nullptr, 16) == reinterpret_cast<std::uintptr_t>(address);
    if (is_found && line.starts_with("VmFlags:")) return line;
  }
  return {};
}

TEST(SharedRegion, IsInNoCoreDumpOfAnyRank) {
  const auto region = reserve_shared_region(1 << 20);
  ASSERT_TRUE(region.ok()) << region.error().message;
  const auto mapping = map_shared_region((*region)->key());
  ASSERT_TRUE(mapping.ok()) << mapping.error().message;
  for (const void* const address : {(*region)->bytes().data(), (*mapping)->bytes().data()})
    EXPECT_THAT(flags_at(address), testing::HasSubstr(" dd"));
}

TEST(SharedRegion, BeyondTheLimitOfFilesIsAnError) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit most{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &most);
    const auto large = reserve_shared_region(64 << 20);
    const bool is_refused = !large.ok() && large.error().code == ErrorCode::kOutOfMemory &&
                            large.error().message.find("ulimit -f") != std::string::npos;
    _exit(is_refused && reserve_shared_region(1 << 16).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace kolo::test
