// A rank that gives up an operation gets its memory of the device's arena back only when no peer's
// device writes there any more.
#include "tests/support/device_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <thread>

namespace kolo::test::device_abort_test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kType = DataType::kFloat32;
constexpr std::size_t kCount = 50'000;
constexpr int kRanks = 2;
constexpr milliseconds kHeld{100};
/// Less time than ranks wait for a process that was stopped.
constexpr milliseconds kAtOnce{900};

// Rank 1's device may not write results to rank 0's memory until rank 0 has given up. Rank 1 drains
// its device before it waits for others: otherwise both would wait for their longest time.
TEST(DeviceAbort, WhatAPeersDeviceWritesIsWaitedFor) {
  std::array<std::shared_ptr<std::byte>, kRanks> memory;
  std::barrier<> barrier(kRanks);
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::atomic<bool> is_released = false;
  auto options = with_devices(kRanks, Devices::kMapped);
  options.variables["KOLO_LOG_LEVEL"] = "off";
  run_local_world(
      kRanks,
      [&](int rank, Runtime& runtime) {
        const auto self = static_cast<std::size_t>(rank);
        DeviceUser user(runtime);
        memory[self] = *runtime.allocate_on_device(kCount * size_of(kType));
        std::byte* const own = memory[self].get();
        user.fill(kType, own, kCount, [](std::size_t) { return 1; });
        barrier.arrive_and_wait();
        auto& device = dynamic_cast<EmulatedAccelerator&>(*runtime.accelerator()).device();
        if (rank == 1)
          device.hold_writes_to(std::span(memory[1 - self].get(), kCount * size_of(kType)),
                                released);
        const auto work = submit(
            runtime, on_device(user, OperationKind::kAllreduce, "x", kType, own, own, {kCount}));
        if (rank == 1) device.held_writes().wait(0);
        barrier.arrive_and_wait();
        const auto begin = Clock::now();
        std::thread later;
        if (rank == 0) {
          later = std::thread([&] {
            std::this_thread::sleep_for(kHeld);
            is_released = true;
            release.set_value();
          });
          runtime.abort("the test wants it");
        }
        EXPECT_FALSE(work->wait().ok());
        EXPECT_TRUE(is_released) << "a device may write there still";
        EXPECT_LT(Clock::now() - begin, kAtOnce);
        user.fill(kType, own, kCount, [](std::size_t) { return -1; });
        if (later.joinable()) later.join();
        barrier.arrive_and_wait();
        EXPECT_THAT(user.read(kType, own, kCount), testing::Each(-1.0));
      },
      options);
}

}  // namespace
}  // namespace kolo::test::device_abort_test
