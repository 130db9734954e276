// The end of runtimes whose ranks have mapped each other's devices.
#include "tests/support/device_world.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace kolo::test::device_end_test {
namespace {

TEST(DeviceEnd, NoRankFreesWhatAnotherHasMapped) {
  constexpr int kSize = 3;
  std::vector<std::shared_ptr<EmulatedDevice>> devices;
  for (int rank = 0; rank < kSize; ++rank)
    devices.push_back(std::make_shared<EmulatedDevice>(static_cast<std::uint8_t>(rank + 1)));
  LocalWorldOptions options = with_devices(kSize, Devices::kMapped);
  options.accelerator = [&](int rank) -> std::unique_ptr<Accelerator> {
    return std::make_unique<EmulatedAccelerator>(devices[static_cast<std::size_t>(rank)], 0);
  };
  run_local_world(
      kSize,
      [&](int rank, Runtime&) {
        auto& imports = devices[static_cast<std::size_t>(rank)]->imports();
        if (rank == 0) return;  // it unmaps at once, while the others go on
        for (int now = imports; now == kSize - 1; now = imports) imports.wait(now);
      },
      options);
  for (const auto& device : devices) {
    EXPECT_EQ(device->imports(), 0);
    EXPECT_EQ(device->freed_too_early(), 0);
  }
}

}  // namespace
}  // namespace kolo::test::device_end_test
