// Shared memory that is reserved long before it is used: its effects on the rest of the system.
#include "runtime/memory/shared_region.h"

#include "tests/support/sanitizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>

namespace {

/// Bytes that fallocate() allocates between two signals. With more, it undoes its work and fails
/// with EINTR, as kernels do that react to any signal there. 0: no signals come.
std::atomic<off_t> between_signals = 0;
std::atomic<int> interruptions = 0;
/// Offset at which memory is exhausted.
std::atomic<off_t> end_of_memory = 1L << 40;
/// Bytes that were allocated, minus those that were returned.
std::atomic<off_t> granted = 0;

}  // namespace

/// Replaces libc's function.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  constexpr int kPatience = 1000;
  const off_t most = between_signals;
  // Every other call meets a signal, however small it is.
  if (most > 0 && (bytes > most || interruptions % 2 == 0)) {
    errno = ++interruptions < kPatience ? EINTR : EDEADLK;
    return -1;
  }
  if (most > 0) ++interruptions;
  if (mode == 0 && offset + bytes > end_of_memory) {
    errno = ENOSPC;
    return -1;
  }
  const auto outcome = static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
  if (outcome == 0) granted += mode == 0 ? bytes : -bytes;
  return outcome;
}

namespace kolo::test {
namespace {

/// The kernel's flags of the mapping that begins there.
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

TEST(SharedRegion, IsSharedWhereItIsCommitted) {
  constexpr std::size_t kReserved = std::size_t{1} << 34;
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kFar = kReserved - 4 * kPage;
  const auto region = reserve_shared_region(kReserved, 2);
  ASSERT_TRUE(region.ok()) << region.error().message;
  ASSERT_EQ((*region)->bytes().size(), kReserved);
  ASSERT_TRUE((*region)->commit(kFar, 2 * kPage).ok());
  const auto mapping = map_shared_region((*region)->key());
  ASSERT_TRUE(mapping.ok()) << mapping.error().message;
  std::byte* const far = (*region)->bytes().data() + kFar;
  std::byte* const there = (*mapping)->bytes().data() + kFar;
  ASSERT_NE(far, there);
  there[kPage - 1] = there[kPage] = std::byte{7};
  EXPECT_EQ(far[kPage - 1], std::byte{7});
  (*region)->discard(kFar, kPage);
  ASSERT_TRUE((*region)->commit(kFar, kPage).ok());
  EXPECT_EQ(there[kPage - 1], std::byte{0});
  EXPECT_EQ(there[kPage], std::byte{7});
}

TEST(SharedRegion, IsMappedByItsKeyAlone) {
  EXPECT_EQ(map_shared_region("no key").error().code, ErrorCode::kInvalidArgument);
}

TEST(SharedRegion, GetsMemoryWhileSignalsKeepComing) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kBytes = (50 << 20) + kPage;
  const auto region = reserve_shared_region(64 << 20);
  ASSERT_TRUE(region.ok()) << region.error().message;
  const off_t before = granted;
  between_signals = 20 << 20;
  const Status committed = (*region)->commit(kPage, kBytes);
  between_signals = 0;
  ASSERT_TRUE(committed.ok()) << committed.error().message;
  EXPECT_EQ(granted - before, static_cast<off_t>(kBytes));
}

TEST(SharedRegion, GivesBackWhatItHasGotWhereTheRestIsMissing) {
  const auto region = reserve_shared_region(64 << 20);
  ASSERT_TRUE(region.ok()) << region.error().message;
  const off_t before = granted;
  end_of_memory = 40 << 20;
  const Status committed = (*region)->commit(0, 64 << 20);
  end_of_memory = 1L << 40;
  ASSERT_FALSE(committed.ok());
  EXPECT_EQ(committed.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(granted, before);
}

TEST(SharedRegion, NeedsAddressesForThoseOfAllRanks) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory takes more addresses than the limit";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit most{64UL << 30, 64UL << 30};
    setrlimit(RLIMIT_AS, &most);
    const auto large = reserve_shared_region(16UL << 30, 4);
    const bool is_refused = !large.ok() && large.error().code == ErrorCode::kOutOfMemory &&
                            large.error().message.find("ulimit -v") != std::string::npos;
    _exit(is_refused && reserve_shared_region(8UL << 30, 4).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
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

bool is_mapped(const std::byte* page) {
  unsigned char is_resident = 0;
  return mincore(const_cast<std::byte*>(page), 1, &is_resident) == 0;
}

/// Whether `body` is true in a forked child.
template <class Body>
bool holds_in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

TEST(SharedRegion, AForkedChildWritesToPagesOfItsOwn) {
  const auto region = reserve_shared_region(1 << 20);
  ASSERT_TRUE(region.ok()) << region.error().message;
  ASSERT_TRUE((*region)->commit(0, 1 << 20).ok());
  const auto peer = map_shared_region((*region)->key());
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  const std::span<std::byte> bytes = (*region)->bytes();
  const std::byte* const of_peer = (*peer)->bytes().data();
  bytes[0] = bytes[8192] = std::byte{1};
  EXPECT_TRUE(holds_in_child([&] {
    const bool reads = bytes[0] == std::byte{1} && bytes[8192] == std::byte{1};
    bytes[0] = std::byte{2};
    const bool child_reads = holds_in_child([&] {
      const bool inherits = bytes[0] == std::byte{2} && bytes[8192] == std::byte{1};
      bytes[0] = std::byte{3};
      return inherits;
    });
    return reads && child_reads && bytes[0] == std::byte{2} && !is_mapped(of_peer);
  }));
  EXPECT_EQ(bytes[0], std::byte{1});
  EXPECT_EQ(of_peer[0], std::byte{1});
}

}  // namespace
}  // namespace kolo::test
