// Process sets on accelerator memory: through windows of their own, beside each other and the
// world, with devices that their ranks share, and one after the other in the same partition.
#include "tests/support/device_world.h"
#include "tests/support/process_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <string>
#include <vector>

namespace kolo::test::device_sets_test {
namespace {

using Sets = std::vector<std::vector<int>>;

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

EmulatedAccelerator& accelerator_of(Runtime& runtime) {
  return dynamic_cast<EmulatedAccelerator&>(*runtime.accelerator());
}

/// A sum over a set, out of place. Rank r's input is `r + 1` times the same values.
struct Sum {
  static constexpr auto kType = DataType::kFloat32;
  Sum(DeviceUser& its_user, std::uint32_t set, const std::string& name, std::size_t its_count,
      int rank)
      : user(&its_user),
        count(its_count),
        input(its_user.allocate(kType, count)),
        output(its_user.allocate(kType, count)) {
    user->fill(kType, input, count,
               [rank](std::size_t i) { return (rank + 1) * static_cast<double>(i % 9 + 1); });
    call = on_device(*user, OperationKind::kAllreduce, name, kType, input, output,
                     {static_cast<std::int64_t>(count)});
    call.process_set = set;
  }
  void start(Runtime& runtime) { work = submit(runtime, std::move(call)); }
  void expect_sum_of(const std::vector<int>& ranks) {
    const Status status = finish(*user, *work);
    ASSERT_TRUE(status.ok()) << status.error().message;
    double factor = 0;
    for (const int rank : ranks) factor += rank + 1;
    const auto result = user->read(kType, output, count);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(result[i], factor * static_cast<double>(i % 9 + 1)) << i;
  }

  DeviceUser* user;
  std::size_t count;
  std::byte* input;
  std::byte* output;
  Submission call;
  std::shared_ptr<Work> work;
};

class DeviceSets : public testing::TestWithParam<Devices> {};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceSets,
                         testing::Values(Devices::kMapped, Devices::kShared, Devices::kStaged,
                                         Devices::kTwoHosts));

TEST_P(DeviceSets, DisjointOverlappingAndSingleOnesRunAtOnce) {
  const Sets sets{{0, 1, 2, 3, 4}, {0, 1}, {2, 4}, {1, 2, 3}, {3}};
  auto options = with_devices(5, GetParam());
  options.process_sets = {sets.begin() + 1, sets.end()};
  run_local_world(
      5,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        for (const std::size_t count : {1U, 40U, 5000U, 300'000U}) {
          std::vector<std::pair<std::uint32_t, Sum>> sums;
          for (std::uint32_t set = 0; set < sets.size(); ++set)
            for (int i = 0; i < 3 && contains(sets[set], rank); ++i)
              sums.emplace_back(set,
                                Sum(user, set, fmt::format("{}.{}", count, i), count + set, rank));
          // The order differs between ranks.
          if (rank % 2 == 1) std::reverse(sums.begin(), sums.end());
          for (auto& [set, sum] : sums) sum.start(runtime);
          for (auto& [set, sum] : sums) sum.expect_sum_of(sets[set]);
        }
      },
      options);
}

TEST_P(DeviceSets, RowsOfASet) {
  const std::vector<int> set{1, 2, 3};
  auto options = with_devices(4, GetParam());
  options.process_sets = {set};
  run_local_world(
      4,
      [&](int rank, Runtime& runtime) {
        if (!contains(set, rank)) return;
        DeviceUser user(runtime);
        constexpr auto kType = DataType::kInt32;
        constexpr std::size_t kRow = 70'001;
        std::byte* const input = user.allocate(kType, kRow);
        user.fill(kType, input, kRow,
                  [=](std::size_t i) { return rank * 1e6 + static_cast<double>(i); });
        for (const OperationKind kind : {OperationKind::kAllgather, OperationKind::kBroadcast}) {
          const bool gathers = kind == OperationKind::kAllgather;
          Submission call =
              on_device(user, kind, std::string(to_string(kind)), kType, input, input, {1, kRow});
          call.process_set = 1;
          call.signature.root = 2;
          std::byte* output = input;
          if (gathers) {
            call.output = nullptr;
            call.allocate = [&](const Shape& shape) {
              EXPECT_EQ(shape.front(), 3);
              return output = user.allocate(kType, 3 * kRow);
            };
          }
          const Status status = finish(user, *submit(runtime, std::move(call)));
          ASSERT_TRUE(status.ok()) << status.error().message;
          const auto result = user.read(kType, output, gathers ? 3 * kRow : kRow);
          for (std::size_t i = 0; i < result.size(); ++i) {
            const int from = gathers ? static_cast<int>(i / kRow) + 1 : 2;
            ASSERT_EQ(result[i], from * 1e6 + static_cast<double>(i % kRow)) << i;
          }
        }
      },
      options);
}

TEST(DeviceSet, IsNotStaged) {
  auto options = with_devices(3, Devices::kMapped);
  options.process_sets = {{0, 2}};
  run_local_world(
      3,
      [](int rank, Runtime& runtime) {
        if (rank == 1) return;
        DeviceUser user(runtime);
        auto& accelerator = accelerator_of(runtime);
        Sum sum(user, 1, "x", 100'000, rank);
        sum.start(runtime);
        sum.expect_sum_of({0, 2});
        EXPECT_EQ(accelerator.pinned_blocks(), 0U);
      },
      options);
}

class DevicePlaces : public testing::TestWithParam<Devices> {};
INSTANTIATE_TEST_SUITE_P(Devices, DevicePlaces,
                         testing::Values(Devices::kShared, Devices::kStaged));

// Rank 1 shares rank 0's device and unpacks last, because its device is held. When the next set
// gets the partition, the former set still has all its slots. If devices are staged, it has no host
// slots any more while results are copied from there.
TEST_P(DevicePlaces, TheNextSetMeetsABusyDevice) {
  auto options = with_devices(3, GetParam());
  // Pipeline slots for all of it: an operation that reuses a slot would wait for the slot's
  // unpacking.
  options.variables["KOLO_DEVICE_MEMORY"] = "128M";
  options.variables["KOLO_FUSION_MAX_TENSOR"] = "0";
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        constexpr std::size_t kCount = 300'000;
        const std::vector<int> ranks{0, 1};
        DeviceUser user(runtime);
        std::promise<void> release;
        const auto released = release.get_future().share();
        std::vector<Sum> sums;
        const std::uint32_t first = added(runtime, ranks);
        for (int i = 0; i < HostWindow::kSlots && rank < 2; ++i) {
          sums.emplace_back(user, first, fmt::format("t{}", i), kCount, rank);
          const std::span output(sums.back().output, kCount * size_of(Sum::kType));
          if (rank == 1) accelerator_of(runtime).device().hold_writes_to(output, released);
        }
        for (auto& sum : sums) sum.start(runtime);
        for (auto& sum : sums) {
          const Status status = sum.work->wait();
          ASSERT_TRUE(status.ok()) << status.error().message;
        }
        const Status status = removed(runtime, first);
        EXPECT_TRUE(status.ok()) << status.error().message;
        const std::uint32_t second = added(runtime, ranks);
        if (rank < 2) {
          sums.emplace_back(user, second, "next", kCount, rank);
          sums.back().start(runtime);
          if (GetParam() == Devices::kStaged) {
            EXPECT_TRUE(sums.back().work->wait().ok());
          }
        }
        release.set_value();
        for (auto& sum : sums) sum.expect_sum_of(ranks);
      },
      options);
}

}  // namespace
}  // namespace kolo::test::device_sets_test
