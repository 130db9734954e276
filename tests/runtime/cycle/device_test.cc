// Collectives on accelerator memory (accelerators are emulated by threads) through the whole
// runtime: with mapped windows of the devices, with devices that ranks share, staged through the
// host, and over hosts.
#include "runtime/device/device.h"
#include "tests/support/device_world.h"
#include "tests/support/sanitizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <tuple>

namespace kolo::test::device_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class OnDevices : public testing::TestWithParam<std::tuple<int, Devices>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  LocalWorldOptions options() const {
    return with_devices(std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(
    Sizes, OnDevices,
    testing::Combine(testing::Values(1, 2, 3, 5),
                     testing::Values(Devices::kMapped, Devices::kShared, Devices::kStaged,
                                     Devices::kTwoHosts, Devices::kHostsPiped,
                                     Devices::kHostsShared, Devices::kHostsUnmapped)));

TEST_P(OnDevices, AllreduceOfEveryTypeAndOperation) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        for (int t = 0; t < kDataTypeCount; ++t)
          for (const ReduceOp op :
               {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct})
            for (const std::size_t count : {0U, 1U, 37U, 1001U}) {
              const auto type = static_cast<DataType>(t);
              if (!is_supported(type, op)) continue;
              const auto value = [type](int of, std::size_t i) {
                const int small = (static_cast<int>(i) + of) % 3;
                return static_cast<double>(type == DataType::kBool ? small % 2 : small);
              };
              std::byte* const input = user.allocate(type, count);
              std::byte* const output = count % 2 == 0 ? input : user.allocate(type, count);
              user.fill(type, input, count,
                        [&, rank, value](std::size_t i) { return value(rank, i); });
              Submission call = on_device(user, OperationKind::kAllreduce,
                                          fmt::format("{}.{}.{}", t, static_cast<int>(op), count),
                                          type, input, output, {static_cast<std::int64_t>(count)});
              call.signature.op = op;
              const auto work = submit(runtime, std::move(call));
              const Status status = finish(user, *work);
              ASSERT_TRUE(status.ok()) << status.error().message;
              const auto result = user.read(type, output, count);
              for (std::size_t i = 0; i < count; ++i) {
                double expected = value(0, i);
                for (int r = 1; r < size(); ++r) {
                  if (op == ReduceOp::kSum) expected += value(r, i);
                  if (op == ReduceOp::kMin) expected = std::min(expected, value(r, i));
                  if (op == ReduceOp::kMax) expected = std::max(expected, value(r, i));
                  if (op == ReduceOp::kProduct) expected *= value(r, i);
                }
                if (type == DataType::kBool) expected = expected != 0;
                ASSERT_EQ(result[i], expected)
                    << to_string(type) << " " << to_string(op) << " " << i;
              }
            }
      },
      options());
}

TEST_P(OnDevices, FusedTensorsWithFactorsStepAfterStep) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        constexpr int kTensors = 20;
        const auto count_of = [](int i) {
          return static_cast<std::size_t>(1 + i * i * (kSanitized ? 10 : 40));
        };
        std::vector<std::byte*> tensors;
        for (int i = 0; i < kTensors; ++i)
          tensors.push_back(user.allocate(DataType::kFloat32, count_of(i)));
        for (int step = 0; step < (kSanitized ? 2 : 4); ++step) {
          std::vector<std::shared_ptr<Work>> works;
          for (int i = 0; i < kTensors; ++i) {
            const auto count = count_of(i);
            user.fill(DataType::kFloat32, tensors[static_cast<std::size_t>(i)], count,
                      [=](std::size_t k) { return rank + step + static_cast<double>(k % 5); });
            Submission call =
                on_device(user, OperationKind::kAllreduce, fmt::format("t{}", i),
                          DataType::kFloat32, tensors[static_cast<std::size_t>(i)],
                          tensors[static_cast<std::size_t>(i)], {static_cast<std::int64_t>(count)});
            call.signature.prescale = 2.0;
            call.signature.postscale = 0.5;
            call.signature.op = ReduceOp::kAverage;
            works.push_back(submit(runtime, std::move(call)));
          }
          for (int i = 0; i < kTensors; ++i) {
            const Status status = finish(user, *works[static_cast<std::size_t>(i)]);
            ASSERT_TRUE(status.ok()) << status.error().message;
            const auto result =
                user.read(DataType::kFloat32, tensors[static_cast<std::size_t>(i)], count_of(i));
            for (std::size_t k = 0; k < result.size(); ++k)
              ASSERT_NEAR(result[k], (size() - 1) / 2.0 + step + static_cast<double>(k % 5), 1e-5);
          }
        }
      },
      options());
}

TEST_P(OnDevices, RowsOfEveryKind) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        constexpr auto kType = DataType::kInt32;
        constexpr std::int64_t kRow = 301;
        const auto whole = static_cast<std::size_t>(kRow * size());
        const auto value = [](int from, std::size_t i) {
          return static_cast<double>(from * 1000 + static_cast<int>(i % 700));
        };
        for (const OperationKind kind :
             {OperationKind::kBroadcast, OperationKind::kAllgather, OperationKind::kAlltoall,
              OperationKind::kReduceScatter, OperationKind::kGather, OperationKind::kScatter}) {
          const bool has_all = kind == OperationKind::kAlltoall ||
                               kind == OperationKind::kScatter ||
                               kind == OperationKind::kReduceScatter;
          const std::size_t count = has_all ? whole : static_cast<std::size_t>(kRow);
          const int root = size() - 1;
          std::byte* const input = user.allocate(kType, count);
          user.fill(kType, input, count, [=](std::size_t i) { return value(rank, i); });
          Submission call = on_device(user, kind, std::string(to_string(kind)), kType, input,
                                      nullptr, {static_cast<std::int64_t>(count) / kRow, kRow});
          call.signature.root = root;
          std::byte* output = input;
          std::size_t rows = 1;
          if (kind == OperationKind::kBroadcast) {
            call.output = input;
          } else {
            call.allocate = [&](const Shape& shape) {
              rows = static_cast<std::size_t>(shape.front());
              output = user.allocate(kType, rows * kRow);
              // Memory that was used before: the stream still writes to it for some time.
              user.fill(kType, output, rows * kRow, [](std::size_t i) { return slowly(i, -1); });
              return output;
            };
          }
          const auto work = submit(runtime, std::move(call));
          const Status status = finish(user, *work);
          ASSERT_TRUE(status.ok()) << to_string(kind) << ": " << status.error().message;
          const auto result = user.read(kType, output, rows * kRow);
          for (std::size_t i = 0; i < result.size(); ++i) {
            const int from = static_cast<int>(i / kRow);
            const std::size_t column = i % kRow;
            double expected = 0;
            if (kind == OperationKind::kBroadcast) expected = value(root, i);
            if (kind == OperationKind::kAllgather || kind == OperationKind::kGather)
              expected = value(from, column);
            const std::size_t mine = static_cast<std::size_t>(rank) * kRow + column;
            if (kind == OperationKind::kAlltoall) expected = value(from, mine);
            if (kind == OperationKind::kScatter) expected = value(root, mine);
            if (kind == OperationKind::kReduceScatter)
              for (int r = 0; r < size(); ++r) expected += value(r, mine);
            ASSERT_EQ(result[i], expected) << to_string(kind) << " element " << i;
          }
          if (kind == OperationKind::kGather && rank != root) {
            EXPECT_EQ(rows, 0U);
          }
        }
      },
      options());
}

TEST_P(OnDevices, MessagesGoFromDeviceToDevice) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        constexpr std::size_t kCount = 5000;
        std::byte* const out = user.allocate(DataType::kFloat64, kCount);
        std::byte* const in = user.allocate(DataType::kFloat64, kCount);
        user.fill(DataType::kFloat64, out, kCount,
                  [=](std::size_t i) { return rank * 1e4 + static_cast<double>(i); });
        auto sent =
            on_device(user, OperationKind::kSend, "", DataType::kFloat64, out, nullptr, {kCount});
        sent.signature.root = (rank + 1) % size();
        auto received =
            on_device(user, OperationKind::kReceive, "", DataType::kFloat64, nullptr, in, {kCount});
        const int from = (rank + size() - 1) % size();
        received.signature.root = from;
        auto sending = runtime.submit_message(std::move(sent));
        auto receiving = runtime.submit_message(std::move(received));
        ASSERT_TRUE(sending.ok() && receiving.ok());
        ASSERT_TRUE(finish(user, **sending).ok());
        ASSERT_TRUE(finish(user, **receiving).ok());
        const auto result = user.read(DataType::kFloat64, in, kCount);
        for (std::size_t i = 0; i < kCount; ++i)
          ASSERT_EQ(result[i], from * 1e4 + static_cast<double>(i));
      },
      options());
}

TEST(OnDevice, WaitsForTheStreamAndNotForTheHost) {
  run_local_world(
      1,
      [](int, Runtime& runtime) {
        DeviceUser user(runtime);
        std::byte* const memory = user.allocate(DataType::kFloat32, 8);
        std::promise<void> release;
        user.hold(release.get_future().share());
        user.fill(DataType::kFloat32, memory, 8, [](std::size_t) { return 3.0; });
        Submission call = on_device(user, OperationKind::kAllreduce, "x", DataType::kFloat32,
                                    memory, memory, {8});
        call.signature.postscale = 2.0;
        const auto work = submit(runtime, std::move(call));
        // The host's wait returns although the input is not there yet.
        ASSERT_TRUE(work->wait().ok());
        ASSERT_TRUE(work->order(user.stream()).ok());
        release.set_value();
        EXPECT_THAT(user.read(DataType::kFloat32, memory, 8), testing::Each(6.0));
      },
      with_devices(1, Devices::kMapped));
}

TEST(OnDevice, HostMemoryOnOneRankIsNamed) {
  run_local_world(
      2,
      [](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        std::vector<float> host(8, 1.0F);
        std::byte* const memory = user.allocate(DataType::kFloat32, 8);
        Submission call = rank == 0 ? on_device(user, OperationKind::kAllreduce, "x",
                                                DataType::kFloat32, memory, memory, {8})
                                    : allreduce_of("x", host);
        const Status status = submit(runtime, std::move(call))->wait();
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
        EXPECT_THAT(status.error().message, HasSubstr("a CUDA device's"));
        EXPECT_THAT(status.error().message, HasSubstr("the host's"));
      },
      with_devices(2, Devices::kMapped));
}

// Both directions, and a message to oneself; later operations are not disturbed.
TEST(OnDevice, AMessageBetweenHostAndDeviceIsNamed) {
  constexpr std::size_t kCount = 2'000'000;
  run_local_world(
      2,
      [](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        std::vector<float> host(kCount, 1.0F);
        std::byte* const device = user.allocate(DataType::kFloat32, kCount);
        const auto message = [&](OperationKind kind, bool on_the_device, int peer) {
          const Shape shape = {static_cast<std::int64_t>(kCount)};
          Submission call = on_device(user, kind, "", DataType::kFloat32, device, device, shape);
          if (!on_the_device) {
            call = allreduce_of("", host);
            call.signature.kind = kind;
          }
          call.signature.root = peer;
          return *runtime.submit_message(std::move(call));
        };
        const auto expect_refusal = [](const std::shared_ptr<Work>& work) {
          const Status status = work->wait();
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
          EXPECT_THAT(status.error().message, HasSubstr(" of float32 in a CUDA device's memory"));
          EXPECT_THAT(status.error().message, HasSubstr(" of float32 in the host's memory"));
        };
        for (const bool sender_on_device : {true, false}) {
          if (rank == 0) expect_refusal(message(OperationKind::kSend, sender_on_device, 1));
          if (rank == 1) expect_refusal(message(OperationKind::kReceive, !sender_on_device, 0));
          const auto sent = message(OperationKind::kSend, sender_on_device, rank);
          expect_refusal(message(OperationKind::kReceive, !sender_on_device, rank));
          expect_refusal(sent);
        }
        const auto last =
            message(rank == 0 ? OperationKind::kSend : OperationKind::kReceive, true, 1 - rank);
        EXPECT_TRUE(finish(user, *last).ok());
      },
      with_devices(2, Devices::kMapped));
}

TEST(OnDevice, ARankWithoutADeviceFailsTheOperationAlone) {
  auto options = with_devices(2, Devices::kMapped);
  options.accelerator = [open = options.accelerator](int rank) {
    return rank == 1 ? std::unique_ptr<Accelerator>() : open(rank);
  };
  run_local_world(
      2,
      [](int, Runtime& runtime) {
        Submission call;
        call.name = "x";
        call.signature.shape = {4};
        std::array<float, 4> memory = {};
        std::optional<DeviceUser> user;
        if (runtime.accelerator() != nullptr) {
          user.emplace(runtime);
          call.input = call.output = user->allocate(DataType::kFloat32, 4);
          call.stream = user->stream();
        } else {
          call.input = call.output = reinterpret_cast<std::byte*>(memory.data());
          call.stream = CudaStream{};
        }
        const Status status = submit(runtime, std::move(call))->wait();
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message,
                    HasSubstr("has no CUDA device: the test gives it none"));
        std::vector<float> host(4, 1.0F);
        EXPECT_TRUE(submit(runtime, allreduce_of("y", host))->wait().ok());
        EXPECT_EQ(host[0], 2.0F);
      },
      options);
}

TEST(OnDevice, OneThatDoesNotOpenIsTheErrorOfAllRanks) {
  auto options = with_devices(3, Devices::kMapped);
  options.accelerator = [open = options.accelerator](int rank) {
    return rank == 1 ? KOLO_ERROR(kDevice, "device 0: the driver is too old") : open(rank);
  };
  std::vector<std::string> messages;
  for (const Error& error : refusals(3, options)) messages.push_back(error.message);
  const auto told = AllOf(StartsWith("rank 1 (host "),
                          HasSubstr("cannot start: device 0: the driver is too old"));
  EXPECT_THAT(messages, UnorderedElementsAre("device 0: the driver is too old", told, told));
}

TEST(OnDevice, MemoryThatIsMappedAndNotReadIsNotUsed) {
  auto astray = std::make_shared<EmulatedDevice>(std::uint8_t{9});
  astray->lead_astray();
  auto options = with_devices(3, Devices::kMapped);
  options.accelerator =
      [astray, open = options.accelerator](int rank) -> Result<std::unique_ptr<Accelerator>> {
    if (rank == 2) return {std::make_unique<EmulatedAccelerator>(astray, 0)};
    return open(rank);
  };
  testing::internal::CaptureStderr();
  run_local_world(
      3,
      [](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        constexpr auto kType = DataType::kFloat32;
        std::byte* const memory = user.allocate(kType, 1000);
        user.fill(kType, memory, 1000, [rank](std::size_t) { return rank + 1.0; });
        const auto work = submit(runtime, on_device(user, OperationKind::kAllreduce, "x", kType,
                                                    memory, memory, {1000}));
        ASSERT_TRUE(finish(user, *work).ok());
        EXPECT_EQ(user.read(kType, memory, 1000), std::vector<double>(1000, 6.0));
      },
      options);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("do not map each other's device memory"),
                    HasSubstr("maps memory of rank 0, but does not read there")));
}

/// Three ranks; rank 1's device can be made to fail.
LocalWorldOptions with_device_of_rank_1(std::shared_ptr<EmulatedDevice> device) {
  auto options = with_devices(3, Devices::kMapped);
  options.accelerator = [device = std::move(device), open = options.accelerator](
                            int rank) -> Result<std::unique_ptr<Accelerator>> {
    if (rank == 1) return {std::make_unique<EmulatedAccelerator>(device, 0)};
    return open(rank);
  };
  return options;
}

TEST(OnDevice, AFailedDeviceFailsAllRanks) {
  auto device = std::make_shared<EmulatedDevice>(std::uint8_t{7});
  const auto options = with_device_of_rank_1(device);
  std::barrier all_have_passed(3);
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        std::byte* const memory = user.allocate(DataType::kFloat32, 100'000);
        for (int step = 0; step < 2; ++step) {
          const auto work = runtime.submit(on_device(
              user, OperationKind::kAllreduce, "x", DataType::kFloat32, memory, memory, {100'000}));
          if (!work.ok()) {
            EXPECT_THAT(work.error().message, HasSubstr("illegal memory access"));
            if (rank == 1) runtime.abort(work.error().message);
            return;
          }
          const Status status = (*work)->wait();
          if (step == 0) {
            ASSERT_TRUE(status.ok()) << status.error().message;
            ASSERT_TRUE((*work)->order(user.stream()).ok());
            all_have_passed.arrive_and_wait();  // the failure may overtake the end of this step
            if (rank == 1) device->fail();
          } else {
            ASSERT_FALSE(status.ok());
            EXPECT_THAT(status.error().message, HasSubstr("rank 1"));
            EXPECT_THAT(status.error().message, HasSubstr("illegal memory access"));
          }
        }
      },
      options);
}

TEST(OnDevice, ADeviceThatFailsBeforeTheOperationStartsFailsAllRanks) {
  auto device = std::make_shared<EmulatedDevice>(std::uint8_t{7});
  const auto options = with_device_of_rank_1(device);
  std::barrier has_failed(3);
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        std::byte* const memory = user.allocate(DataType::kFloat32, 1000);
        const auto call = on_device(user, OperationKind::kAllreduce, "x", DataType::kFloat32,
                                    memory, memory, {1000});
        std::shared_ptr<Work> work;
        if (rank == 1) {
          work = submit(runtime, call);
          device->fail();
        }
        has_failed.arrive_and_wait();  // the others come last, so the operation cannot have started
        if (rank != 1) work = submit(runtime, call);
        const Status status = work->wait();
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message, HasSubstr("rank 1"));
        EXPECT_THAT(status.error().message, HasSubstr("illegal memory access"));
      },
      options);
}

TEST(OnDevice, MemoryDoesNotGrowWithSteps) {
  run_local_world(
      2,
      [](int, Runtime& runtime) {
        DeviceUser user(runtime);
        auto& accelerator = dynamic_cast<EmulatedAccelerator&>(*runtime.accelerator());
        std::byte* const memory = user.allocate(DataType::kFloat32, 300'000);
        std::size_t after_first = 0;
        for (int step = 0; step < 20; ++step) {
          const auto work =
              submit(runtime, on_device(user, OperationKind::kAllreduce, "x", DataType::kFloat32,
                                        memory, memory, {300'000}));
          ASSERT_TRUE(finish(user, *work).ok());
          if (step == 0) after_first = accelerator.bytes_allocated();
        }
        EXPECT_EQ(accelerator.bytes_allocated(), after_first);
      },
      with_devices(2, Devices::kMapped));
}

}  // namespace
}  // namespace kolo::test::device_test
