// Collectives on device memory that other ranks reach in place (DeviceArena). Every rank has its
// own mixture of arena memory and ordinary memory; if all have arena memory, nothing is copied.
#include "tests/support/device_world.h"
#include "tests/support/sanitizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kolo::test::device_arena_test {
namespace {

constexpr auto kType = DataType::kFloat32;

/// Memory of the arena, or the user's own.
class Memory {
 public:
  Memory(Runtime& runtime, DeviceUser& user, std::size_t count, bool shared) {
    if (shared) {
      auto memory = runtime.allocate_on_device(count * size_of(kType));
      EXPECT_TRUE(memory.ok() && *memory != nullptr);
      shared_ = *std::move(memory);
    }
    data_ = shared ? shared_.get() : user.allocate(kType, count);
  }
  std::byte* data() const { return data_; }

 private:
  std::shared_ptr<std::byte> shared_;
  std::byte* data_;
};

/// Whether input and output of a rank lie in the arena in a round: another mixture for each rank.
std::pair<bool, bool> mixture(int round, int rank) {
  if (round == 0) return {true, true};
  const int place = (round + rank) % 4;
  return {place % 2 == 1, place / 2 == 1};
}

/// Whole numbers, so that sums are exact.
double element(int rank, std::size_t i) { return static_cast<double>((i * 31 + rank * 7U) % 509); }

class DeviceArenas : public testing::TestWithParam<std::tuple<int, Devices>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  void run(const std::function<void(int rank, Runtime& runtime)>& body) const {
    run_local_world(size(), body, with_devices(size(), std::get<1>(GetParam())));
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, DeviceArenas,
                         testing::Combine(testing::Values(2, 3, 5),
                                          testing::Values(Devices::kMapped, Devices::kShared)));

TEST_P(DeviceArenas, SumsOfEveryMixture) {
  run([&](int rank, Runtime& runtime) {
    DeviceUser user(runtime);
    for (const std::size_t count : {7U, 5003U, kSanitized ? 30'001U : 300'001U})
      for (const double prescale : {1.0, 2.0})
        for (int round = 0; round < 5; ++round) {
          const auto [input_is_shared, output_is_shared] = mixture(round, rank);
          const Memory input(runtime, user, count, input_is_shared);
          const Memory output(runtime, user, count, output_is_shared);
          user.fill(kType, input.data(), count, [=](std::size_t i) { return element(rank, i); });
          user.fill(kType, output.data(), count, [](std::size_t) { return -1; });
          Submission call = on_device(user, OperationKind::kAllreduce, "x", kType, input.data(),
                                      output.data(), {static_cast<std::int64_t>(count)});
          call.signature.prescale = prescale;
          const Status status = finish(user, *submit(runtime, std::move(call)));
          ASSERT_TRUE(status.ok()) << status.error().message;
          const auto inputs = user.read(kType, input.data(), count);
          const auto result = user.read(kType, output.data(), count);
          for (std::size_t i = 0; i < count; ++i) {
            double expected = 0;
            for (int r = 0; r < size(); ++r) expected += prescale * element(r, i);
            ASSERT_EQ(result[i], expected) << "round " << round << ", element " << i;
            ASSERT_EQ(inputs[i], element(rank, i)) << "round " << round << ", element " << i;
          }
        }
  });
}

TEST_P(DeviceArenas, RowsOfEveryMixture) {
  run([&](int rank, Runtime& runtime) {
    DeviceUser user(runtime);
    constexpr std::size_t kPart = kSanitized ? 10'007 : 40'009;
    const std::size_t all = kPart * static_cast<std::size_t>(size());
    for (const OperationKind kind :
         {OperationKind::kBroadcast, OperationKind::kAllgather, OperationKind::kAlltoall,
          OperationKind::kReduceScatter, OperationKind::kGather, OperationKind::kScatter})
      for (int round = 0; round < 4; ++round) {
        const bool whole_in = kind == OperationKind::kAlltoall ||
                              kind == OperationKind::kReduceScatter ||
                              kind == OperationKind::kScatter;
        const bool whole_out = kind == OperationKind::kAllgather ||
                               kind == OperationKind::kAlltoall || kind == OperationKind::kGather;
        const std::size_t inputs = whole_in ? all : kPart;
        const std::size_t outputs = whole_out ? all : kPart;
        const auto [input_is_shared, output_is_shared] = mixture(round, rank);
        const Memory input(runtime, user, inputs, input_is_shared);
        const Memory output(runtime, user, outputs, output_is_shared);
        user.fill(kType, input.data(), inputs, [=](std::size_t i) { return element(rank, i); });
        Submission call = on_device(
            user, kind, std::string(to_string(kind)), kType, input.data(), output.data(),
            {static_cast<std::int64_t>(inputs / kPart), static_cast<std::int64_t>(kPart)});
        call.signature.root = 1;
        if (kind != OperationKind::kBroadcast) {
          call.output = nullptr;
          call.allocate = [&](const Shape&) { return output.data(); };
        }
        const Status status = finish(user, *submit(runtime, std::move(call)));
        ASSERT_TRUE(status.ok()) << to_string(kind) << ": " << status.error().message;
        if (kind == OperationKind::kGather && rank != 1) continue;
        const auto result = user.read(kType, output.data(), outputs);
        for (std::size_t i = 0; i < outputs; ++i) {
          const int from = static_cast<int>(i / kPart);
          const std::size_t mine = static_cast<std::size_t>(rank) * kPart + i % kPart;
          double expected = 0;
          if (kind == OperationKind::kBroadcast) expected = element(1, i);
          if (kind == OperationKind::kAllgather || kind == OperationKind::kGather)
            expected = element(from, i % kPart);
          if (kind == OperationKind::kScatter) expected = element(1, mine);
          if (kind == OperationKind::kAlltoall) expected = element(from, mine);
          if (kind == OperationKind::kReduceScatter)
            for (int r = 0; r < size(); ++r) expected += element(r, mine);
          ASSERT_EQ(result[i], expected) << to_string(kind) << " element " << i;
        }
      }
  });
}

TEST_P(DeviceArenas, NothingIsCopiedInPlace) {
  run([&](int rank, Runtime& runtime) {
    DeviceUser user(runtime);
    constexpr std::size_t kCount = kSanitized ? 100'000 : 400'000;
    const Memory memory(runtime, user, kCount, true);
    auto& pieces = dynamic_cast<EmulatedAccelerator&>(*runtime.accelerator()).device().pieces();
    // A rank that shares the device has finished starting once it has taken part in a call.
    std::vector<float> host(1);
    ASSERT_TRUE(submit(runtime, allreduce_of("start", host))->wait().ok());
    const std::size_t before = pieces.copies;
    for (int step = 0; step < 3; ++step) {
      // Fill slowly, so that a peer that does not wait for the user's stream reads old values.
      user.fill(kType, memory.data(), kCount, [=](std::size_t i) {
        volatile std::size_t work = i;
        for (int k = 0; k < 30; ++k) work = work * 31 + 7;
        return element(rank + step, i);
      });
      const Status status =
          finish(user, *submit(runtime, on_device(user, OperationKind::kAllreduce, "x", kType,
                                                  memory.data(), memory.data(), {kCount})));
      ASSERT_TRUE(status.ok()) << status.error().message;
      const auto result = user.read(kType, memory.data(), kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        double expected = 0;
        for (int r = 0; r < size(); ++r) expected += element(r + step, i);
        ASSERT_EQ(result[i], expected) << "step " << step << ", element " << i;
      }
    }
    EXPECT_EQ(pieces.copies, before);
  });
}

TEST(DeviceArena, GivesZeroedMemoryUntilItIsFull) {
  std::array<std::shared_ptr<std::byte>, 2> kept;
  auto options = with_devices(2, Devices::kMapped);
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        constexpr std::size_t kBytes = 3 << 20;  // 8 MiB hold two of them
        EXPECT_EQ(runtime.info().device_arena_bytes, 8U << 20);
        DeviceUser user(runtime);
        auto first = *runtime.allocate_on_device(kBytes);
        auto second = *runtime.allocate_on_device(kBytes);
        ASSERT_TRUE(first != nullptr && second != nullptr);
        EXPECT_EQ(*runtime.allocate_on_device(kBytes), nullptr);
        user.fill(DataType::kUInt8, first.get(), kBytes, [](std::size_t) { return 7; });
        const std::byte* const place = first.get();
        first.reset();
        first = *runtime.allocate_on_device(kBytes);
        EXPECT_EQ(first.get(), place);
        EXPECT_THAT(user.read(DataType::kUInt8, place, kBytes), testing::Each(0.0));
        kept[static_cast<std::size_t>(rank)] = first;
      },
      options);
  EXPECT_EQ(EmulatedAccelerator::behind(kept[0].get())[0], std::byte{0}) << "it is still there";
}

TEST(DeviceArena, IsNoneWhereDevicesDoNotReachEachOther) {
  for (const Devices devices : {Devices::kStaged, Devices::kTwoHosts})
    run_local_world(
        2,
        [](int, Runtime& runtime) {
          EXPECT_EQ(*runtime.allocate_on_device(4096), nullptr);
          EXPECT_EQ(runtime.info().device_arena_bytes, 0U);
        },
        with_devices(2, devices));
}

}  // namespace
}  // namespace kolo::test::device_arena_test
