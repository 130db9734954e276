// KOLO_OPERATIONS=nccl through the whole runtime, over a fake of NCCL and accelerators that threads
// emulate: the results are kolo's, all ranks have one order, failures, and refusals of init.
#include "runtime/device/device.h"
#include "tests/support/nccl_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

namespace kolo::test::nccl_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class OverNccl : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  const std::shared_ptr<FakeNccl> nccl_ = fake_on_emulated_devices();
};
INSTANTIATE_TEST_SUITE_P(Sizes, OverNccl, testing::Values(1, 2, 3));

TEST_P(OverNccl, EveryTypeAndOperationOrItsRefusal) {
  int refused = 0;
  std::mutex mutex;
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        for (int t = 0; t < kDataTypeCount; ++t)
          for (int o = 0; o < kReduceOpCount; ++o) {
            const auto type = static_cast<DataType>(t);
            const auto op = static_cast<ReduceOp>(o);
            constexpr std::size_t kCount = 37;
            const auto value = [&](int of, std::size_t i) {
              const int small = (static_cast<int>(i) + of) % 3;
              return static_cast<double>(type == DataType::kBool ? small % 2 : small);
            };
            if (!is_supported(type, op)) continue;
            std::byte* const input = user.allocate(type, kCount);
            std::byte* const output = o % 2 == 0 ? input : user.allocate(type, kCount);
            user.fill(type, input, kCount, [=](std::size_t i) { return value(rank, i); });
            Submission call = on_device(user, OperationKind::kAllreduce, fmt::format("{}.{}", t, o),
                                        type, input, output, {kCount});
            call.signature.op = op;
            const auto work = submit(runtime, std::move(call));
            const Status status = finish(user, *work);
            if (const auto reduction = nccl_reduction(type, op); !reduction.ok()) {
              ASSERT_FALSE(status.ok());
              EXPECT_THAT(status.error().message, HasSubstr(reduction.error().message));
              user.read(type, output, kCount);  // nothing is left on the stream
              const std::lock_guard lock(mutex);
              ++refused;
              continue;
            }
            ASSERT_TRUE(status.ok()) << status.error().message;
            const auto result = user.read(type, output, kCount);
            for (std::size_t i = 0; i < kCount; ++i) {
              double expected = value(0, i);
              for (int r = 1; r < size(); ++r) {
                if (op == ReduceOp::kSum || op == ReduceOp::kAverage) expected += value(r, i);
                if (op == ReduceOp::kMax) expected = std::max(expected, value(r, i));
                if (op == ReduceOp::kMin) expected = std::min(expected, value(r, i));
                if (op == ReduceOp::kProduct) expected *= value(r, i);
              }
              if (type == DataType::kBool) expected = expected != 0;
              if (op == ReduceOp::kAverage) {
                expected /= size();
                const bool is_whole = type == DataType::kInt64 || type == DataType::kInt32 ||
                                      type == DataType::kInt8 || type == DataType::kUInt8;
                if (is_whole) expected = std::trunc(expected);
              }
              ASSERT_NEAR(result[i], expected, 0.004 * expected)
                  << to_string(type) << " " << to_string(op) << " " << i;
            }
          }
      },
      over_nccl(size(), nccl_));
  // int16 with five operations, products of complex numbers, Adasum of four types.
  EXPECT_EQ(refused, size() * (5 + 2 + 4));
  for (int rank = 1; rank < size(); ++rank)
    EXPECT_EQ(allreduces(*nccl_, rank), allreduces(*nccl_, 0));
  EXPECT_EQ(allreduces(*nccl_, 0).size(), 8U * 5 + 4 + 2 * 2);
}

TEST_P(OverNccl, FusedTensorsWithFactorsStepAfterStep) {
  constexpr int kTensors = 20;
  constexpr int kSteps = 4;
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        const auto count_of = [](int i) { return static_cast<std::size_t>(1 + i * i * 40); };
        std::vector<std::byte*> tensors;
        for (int i = 0; i < kTensors; ++i)
          tensors.push_back(user.allocate(DataType::kFloat32, count_of(i)));
        for (int step = 0; step < kSteps; ++step) {
          std::vector<std::shared_ptr<Work>> works;
          for (int i = 0; i < kTensors; ++i) {
            std::byte* const memory = tensors[static_cast<std::size_t>(i)];
            user.fill(DataType::kFloat32, memory, count_of(i),
                      [=](std::size_t k) { return rank + step + static_cast<double>(k % 5); });
            Submission call = on_device(user, OperationKind::kAllreduce, fmt::format("t{}", i),
                                        DataType::kFloat32, memory, memory,
                                        {static_cast<std::int64_t>(count_of(i))});
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
      over_nccl(size(), nccl_));
  for (int rank = 1; rank < size(); ++rank)
    EXPECT_EQ(allreduces(*nccl_, rank), allreduces(*nccl_, 0));
  EXPECT_LT(allreduces(*nccl_, 0).size(), static_cast<std::size_t>(kTensors * kSteps));
  for (int rank = 0; rank < size(); ++rank) {
    EXPECT_EQ(nccl_->count(rank, "init"), 1);
    EXPECT_EQ(nccl_->count(rank, "destroy"), 1);
    EXPECT_EQ(nccl_->count(rank, "abort"), 0);
  }
}

// NCCL adds in the half type: an average overflows unless inputs are divided first.
TEST_P(OverNccl, HalfTypesAreDividedBeforeTheyAreAdded) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        for (const std::size_t tensors : {1UL, 3UL}) {
          std::vector<std::byte*> memory;
          std::vector<std::shared_ptr<Work>> works;
          for (std::size_t i = 0; i < tensors; ++i) {
            memory.push_back(user.allocate(DataType::kFloat16, 100));
            user.fill(DataType::kFloat16, memory[i], 100, [](std::size_t) { return 40'000.0; });
            Submission call =
                on_device(user, OperationKind::kAllreduce, fmt::format("half{}.{}", tensors, i),
                          DataType::kFloat16, memory[i], memory[i], {100});
            call.signature.op = ReduceOp::kAverage;
            call.signature.postscale = 1.5;
            works.push_back(submit(runtime, std::move(call)));
          }
          for (std::size_t i = 0; i < tensors; ++i) {
            const Status status = finish(user, *works[i]);
            ASSERT_TRUE(status.ok()) << status.error().message;
            // One rounding each for the quotients, the sum and the result.
            for (const double value : user.read(DataType::kFloat16, memory[i], 100))
              ASSERT_NEAR(value, 60'000, 60'000 * 3 * 0x1p-11) << "rank " << rank;
          }
        }
      },
      over_nccl(size(), nccl_));
}

/// Sums one float of each rank, r + 1 on rank r; also waits for the device.
Status sum_ranks(DeviceUser& user, Runtime& runtime, const std::string& name, double& result,
                 std::uint32_t set = 0) {
  std::byte* const memory = user.allocate(DataType::kFloat32, 1);
  const int rank = runtime.world().rank();
  user.fill(DataType::kFloat32, memory, 1, [=](std::size_t) { return rank + 1.0; });
  Submission call =
      on_device(user, OperationKind::kAllreduce, name, DataType::kFloat32, memory, memory, {1});
  call.process_set = set;
  auto work =
      name.empty() ? runtime.submit_ordered(std::move(call)) : runtime.submit(std::move(call));
  const Status status = work.ok() ? finish(user, **work) : Status(work.error());
  // Also after a failure: the memory must live as long as the stream's work.
  const double value = user.read(DataType::kFloat32, memory, 1).front();
  if (status.ok()) result = value;
  return status;
}

/// Makes sure that all ranks have come this far.
bool sum_ranks_on_host(Runtime& runtime) {
  std::vector<float> one(1, 1.0F);
  return submit(runtime, allreduce_of("host", one))->wait().ok();
}

TEST(OverNcclWorld, SubmissionModesAndProcessSetsHaveCommunicatorsOfTheirOwn) {
  const auto nccl = fake_on_emulated_devices();
  auto options = over_nccl(3, nccl);
  options.process_sets = {{1, 2}};
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        for (int step = 0; step < 3; ++step) {
          double sum = 0;
          const Status named = sum_ranks(user, runtime, "x", sum);
          ASSERT_TRUE(named.ok()) << named.error().message;
          EXPECT_EQ(sum, 6);
          const Status ordered = sum_ranks(user, runtime, "", sum);
          ASSERT_TRUE(ordered.ok()) << ordered.error().message;
          EXPECT_EQ(sum, 6);
          if (rank == 0) continue;
          const Status of_set = sum_ranks(user, runtime, "y", sum, 1);
          ASSERT_TRUE(of_set.ok()) << of_set.error().message;
          EXPECT_EQ(sum, 5);
        }
      },
      options);
  EXPECT_EQ(nccl->count(0, "init"), 2 + 1);  // the set's rank 0 is the world's rank 1
  EXPECT_EQ(nccl->count(1, "init"), 2 + 1);
}

TEST(OverNcclWorld, HostMemoryAndOtherCollectivesAreKolos) {
  const auto nccl = fake_on_emulated_devices();
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        std::vector<float> host(8, 1.0F);
        ASSERT_TRUE(submit(runtime, allreduce_of("host", host))->wait().ok());
        EXPECT_EQ(host[3], 2.0F);
        std::byte* const memory = user.allocate(DataType::kInt32, 8);
        user.fill(DataType::kInt32, memory, 8, [=](std::size_t) { return rank + 4.0; });
        const auto work = submit(runtime, on_device(user, OperationKind::kBroadcast, "b",
                                                    DataType::kInt32, memory, memory, {8}));
        ASSERT_TRUE(finish(user, *work).ok());
        EXPECT_THAT(user.read(DataType::kInt32, memory, 8), testing::Each(4.0));
      },
      over_nccl(2, nccl));
  EXPECT_TRUE(allreduces(*nccl, 0).empty());
}

TEST(OverNcclWorld, AnErrorThatComesLaterFailsAllRanksWithNcclsWords) {
  const auto nccl = fake_on_emulated_devices();
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        double sum = 0;
        ASSERT_TRUE(sum_ranks(user, runtime, "x", sum).ok());
        ASSERT_TRUE(sum_ranks(user, runtime, "", sum).ok());  // a second communicator
        // All ranks have finished both; the error may come while some still sum here.
        static_cast<void>(sum_ranks_on_host(runtime));
        if (rank == 1) {
          nccl->hang();
          nccl->fail(1, "later", NcclResult::kUnhandledCudaError, "the GPU fell off the bus");
        }
        Status status;
        // The first may have been submitted, and be done, before the error comes.
        for (int step = 0; step < 2 && status.ok(); ++step)
          status = sum_ranks(user, runtime, fmt::format("late.{}", step), sum);
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message,
                    AllOf(HasSubstr("rank 1 ("), HasSubstr("the GPU fell off the bus")));
      },
      over_nccl(3, nccl));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(nccl->count(rank, "abort"), 2);
    EXPECT_EQ(nccl->count(rank, "destroy"), 0);
  }
}

TEST(OverNcclWorld, AnotherRanksFailureEndsWhatHangsOnTheDevice) {
  const auto nccl = fake_on_emulated_devices();
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        double sum = 0;
        ASSERT_TRUE(sum_ranks(user, runtime, "x", sum).ok());
        std::byte* const memory = user.allocate(DataType::kFloat32, 1);
        if (rank == 0) nccl->hang();
        ASSERT_TRUE(sum_ranks_on_host(runtime));
        const auto work = submit(runtime, on_device(user, OperationKind::kAllreduce, "stuck",
                                                    DataType::kFloat32, memory, memory, {1}));
        const Status given = finish(user, *work);
        ASSERT_TRUE(given.ok()) << given.error().message;  // it is on the stream, where it hangs
        // It hangs on both ranks, and the host goes on; rank 1 may have finished before rank 0.
        const bool goes_on = sum_ranks_on_host(runtime);
        if (rank == 1) {
          EXPECT_TRUE(goes_on);
          runtime.abort("the test wants it");
        }
        // The stream goes on once the communicator is aborted.
        user.read(DataType::kFloat32, memory, 1);
        const Status after = sum_ranks(user, runtime, "after", sum);
        ASSERT_FALSE(after.ok());
        EXPECT_THAT(after.error().message, HasSubstr("rank 1 has given up: the test wants it"));
      },
      over_nccl(2, nccl));
  EXPECT_EQ(nccl->count(0, "abort"), 1);
  EXPECT_EQ(nccl->count(1, "abort"), 1);
}

TEST(OverNcclWorld, JoinedRanksAddZeros) {
  const auto nccl = fake_on_emulated_devices();
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        if (rank == 0) {
          double sum = 0;
          const Status status = sum_ranks(user, runtime, "x", sum);
          ASSERT_TRUE(status.ok()) << status.error().message;
          EXPECT_EQ(sum, 1);
        }
        Submission join;
        join.signature.kind = OperationKind::kJoin;
        EXPECT_TRUE(submit(runtime, std::move(join))->wait().ok());
      },
      over_nccl(2, nccl));
  EXPECT_EQ(allreduces(*nccl, 0), allreduces(*nccl, 1));
}

TEST(OverNcclInit, WhatIsMissingIsAnErrorOfEveryRank) {
  auto without_nccl = over_nccl(2, nullptr);
  for (const Error& error : refusals(2, without_nccl))
    EXPECT_THAT(error.message, HasSubstr("rank 0: the test gives it no NCCL"));

  const auto nccl = fake_on_emulated_devices();
  auto without_device = over_nccl(2, nccl);
  without_device.accelerator = [open = without_device.accelerator](int rank) {
    return rank == 1 ? std::unique_ptr<Accelerator>() : open(rank);
  };
  for (const Error& error : refusals(2, without_device))
    EXPECT_THAT(error.message,
                HasSubstr("KOLO_OPERATIONS=nccl: rank 1: it has no CUDA device: the test"));

  auto shared = over_nccl(2, nccl);
  shared.accelerator = with_devices(2, Devices::kShared).accelerator;
  for (const Error& error : refusals(2, shared))
    EXPECT_THAT(error.message, AllOf(HasSubstr("ranks 0 and 1 share GPU-"),
                                     HasSubstr("set KOLO_OPERATIONS=kolo")));
}

}  // namespace
}  // namespace kolo::test::nccl_test
