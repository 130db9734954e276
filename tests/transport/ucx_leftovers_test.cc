// Removal of UCX's leftover shared memory: files that no process has open or mapped.
#include "transport/ucx/ucx_leftovers.h"

#include "runtime/base/unique_handle.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace kolo {
namespace {

class UcxLeftovers : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  UniqueDescriptor make(const std::string& name) const {
    UniqueDescriptor file(
        ::open((folder_ + "/" + name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    EXPECT_TRUE(bool(file));
    EXPECT_EQ(::ftruncate(file.get(), kBytes), 0);
    return file;
  }
  bool is_there(const std::string& name) const {
    return std::filesystem::exists(folder_ + "/" + name);
  }

  static constexpr off_t kBytes = 4096;
  const std::string folder_ = "/dev/shm/kolo_leftovers_test_" + std::to_string(::getpid());
};

TEST_F(UcxLeftovers, WhatADeadProcessHasLeftGoes) {
  make("ucx_shm_posix_1").reset();
  make("another").reset();
  remove_ucx_leftovers(folder_);
  EXPECT_FALSE(is_there("ucx_shm_posix_1"));
  EXPECT_TRUE(is_there("another"));
}

TEST_F(UcxLeftovers, WhatSomebodyHasOpenOrMappedStays) {
  const UniqueDescriptor open = make("ucx_shm_posix_1");
  UniqueDescriptor file = make("ucx_shm_posix_2");
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  file.reset();
  remove_ucx_leftovers(folder_);
  EXPECT_TRUE(is_there("ucx_shm_posix_1"));
  EXPECT_TRUE(is_there("ucx_shm_posix_2"));
  ::munmap(mapped, kBytes);
}

TEST_F(UcxLeftovers, NoFolderIsNoError) { remove_ucx_leftovers(folder_ + "/none"); }

}  // namespace
}  // namespace kolo
