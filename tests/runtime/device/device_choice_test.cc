// Which device a rank gets by KOLO_DEVICE, and the error for an invalid value.
#include "runtime/device/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace kolo {
namespace {

using testing::HasSubstr;

const Accelerators kTwo{2, ""};
const Accelerators kNone{0, "no driver"};

TEST(DeviceChoice, ByNumberWithOrWithoutItsKind) {
  for (const char* knob : {"1", "cuda:1"}) {
    const auto device = choose_device({.knob = knob}, kTwo);
    ASSERT_TRUE(device.ok()) << device.error().message;
    EXPECT_EQ(*device, std::optional(1)) << knob;
  }
  EXPECT_EQ(*choose_device({.knob = "auto", .local_rank = 3}, kTwo), std::optional(1));
  EXPECT_EQ(*choose_device({.knob = "cpu"}, kTwo), std::nullopt);
}

TEST(DeviceChoice, WhatIsNoDeviceIsNamed) {
  for (const char* knob : {"cuda:", "cuda", "cuda:x", "gpu", "-1", "1 "}) {
    EXPECT_THAT(choose_device({.knob = knob}, kTwo).error().message,
                HasSubstr("' is no device: expected auto, cpu, or a number as 0 or cuda:0"))
        << knob;
  }
  EXPECT_THAT(choose_device({.knob = "cuda:2"}, kTwo).error().message,
              HasSubstr("KOLO_DEVICE is 2, but this process sees 2 CUDA devices, 0 to 1"));
  EXPECT_THAT(choose_device({.knob = "cuda:0"}, kNone).error().message,
              HasSubstr("KOLO_DEVICE is 0, but this process has no CUDA device: no driver"));
}

}  // namespace
}  // namespace kolo
