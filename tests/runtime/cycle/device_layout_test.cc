// Fused tensors of a device lie in the slots of its window at multiples of 16 bytes, whatever comes
// before them, so that kernels read and write 16 bytes at a time.
#include "tests/support/device_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

namespace kolo::test::device_layout_test {
namespace {

class DeviceLayout : public testing::TestWithParam<std::tuple<int, Devices>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, DeviceLayout,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::Values(Devices::kMapped, Devices::kShared)));

TEST_P(DeviceLayout, OddTensorsMisalignNothing) {
  const int size = std::get<0>(GetParam());
  run_local_world(
      size,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        auto& pieces = dynamic_cast<EmulatedAccelerator&>(*runtime.accelerator()).device().pieces();
        for (const DataType type : {DataType::kUInt8, DataType::kFloat16, DataType::kFloat32,
                                    DataType::kComplex64, DataType::kComplex128}) {
          // Small, then larger than the size from which parts are cut at cache lines.
          for (const std::size_t factor : {1U, 307U}) {
            const std::vector<std::size_t> odd{1, 3, 0, 16, 5, 33, 2, 7};
            std::vector<std::byte*> tensors;
            std::vector<Submission> calls;
            for (std::size_t i = 0; i < odd.size(); ++i) {
              const std::size_t count = odd[i] * factor;
              tensors.push_back(user.allocate(type, count));
              user.fill(type, tensors.back(), count, [=](std::size_t k) {
                return static_cast<double>((k + i + static_cast<std::size_t>(rank)) % 7);
              });
              const std::string name = fmt::format("{}.{}.{}", to_string(type), factor, i);
              calls.push_back(on_device(user, OperationKind::kAllreduce, name, type, tensors.back(),
                                        tensors.back(), {static_cast<std::int64_t>(count)}));
            }
            auto works = runtime.submit_group(std::move(calls), "group");
            ASSERT_TRUE(works.ok()) << works.error().message;
            for (const auto& work : *works) {
              const Status status = finish(user, *work);
              ASSERT_TRUE(status.ok()) << status.error().message;
            }
            for (std::size_t i = 0; i < odd.size(); ++i) {
              const auto result = user.read(type, tensors[i], odd[i] * factor);
              for (std::size_t k = 0; k < result.size(); ++k) {
                double expected = 0;
                for (int of = 0; of < size; ++of)
                  expected += static_cast<double>((k + i + static_cast<std::size_t>(of)) % 7);
                ASSERT_EQ(result[k], expected) << to_string(type) << " " << i << " " << k;
              }
            }
          }
        }
        EXPECT_GE(pieces.all, size == 1 ? 0U : 7U);
        EXPECT_EQ(pieces.unlike, 0U);
      },
      with_devices(size, std::get<1>(GetParam())));
}

}  // namespace
}  // namespace kolo::test::device_layout_test
