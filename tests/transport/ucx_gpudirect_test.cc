// The probe for GPUDirect RDMA on hosts without it: no card, or cards that UCX cannot use. The test
// has not yet run on hardware that has it.
#include "transport/ucx/ucx_gpudirect.h"
#include "transport/ucx/ucx_context.h"
#include "transport/ucx/ucx_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace kolo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Builds a sysfs of its own.
class GpuDirectProbe : public testing::Test {
 protected:
  ~GpuDirectProbe() override { std::filesystem::remove_all(system_); }
  void add(const std::string& folder) { std::filesystem::create_directories(system_ + folder); }
  GpuDirect probe() { return probe_gpudirect(memory_, system_); }

  const std::string system_ =
      testing::TempDir() + "sys_" + testing::UnitTest::GetInstance()->current_test_info()->name();
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
};

TEST_F(GpuDirectProbe, NamesTheFolderWithoutACard) {
  const GpuDirect found = probe();
  EXPECT_FALSE(found.works);
  EXPECT_EQ(found.reason, "no RDMA network card on this host (" + system_ + "/class/infiniband)");
  add("/class/infiniband");
  EXPECT_EQ(probe().reason, found.reason);
}

TEST_F(GpuDirectProbe, SaysWhatUcxAnsweredAndWhetherTheModuleIsThere) {
  add("/class/infiniband/none_5");
  const GpuDirect found = probe();
  EXPECT_FALSE(found.works);
  EXPECT_THAT(found.reason,
              AllOf(HasSubstr("UCX " + ucx_version() + ", asked to register 4096 bytes"),
                    HasSubstr("none_5, did not: "), HasSubstr("nvidia_peermem is not loaded")));
  add("/module/nvidia_peermem");
  EXPECT_THAT(probe().reason, HasSubstr("(nvidia_peermem is loaded)"));
}

TEST(UcxMemoryTypes, CudaMemoryIsRefusedByNameWhereUcxHasNoCuda) {
  const auto transport = make_ucx_transport({});
  ASSERT_TRUE(transport.ok()) << transport.error().message;
  std::vector<std::byte> memory(4096);
  const auto region = (*transport)->register_memory(memory, MemoryType::kCuda);
  ASSERT_FALSE(region.ok());
  EXPECT_THAT(region.error().message, HasSubstr("CUDA"));
}

TEST(UcxReach, AsksTheCardsFirst) {
  const auto transport = make_ucx_transport({});
  ASSERT_TRUE(transport.ok()) << transport.error().message;
  std::vector<std::byte> memory(4096);
  const auto reached = (*transport)->reach_device(memory);
  ASSERT_FALSE(reached.ok());
  EXPECT_EQ(reached.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(reached.error().message, probe_gpudirect(memory).reason);
}

}  // namespace
}  // namespace kolo
