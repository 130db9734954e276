// Large all-reduces of device memory over several hosts, emulated by threads of one process: with
// two levels, in pieces through pinned memory, or with network cards that reach the devices. Tests
// the traffic on each link, the memory used, and failures of a device or the network on the way.
#include "tests/support/device_places.h"
#include "tests/support/sanitizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::test::device_hosts_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Bytes of messages between ranks.
struct Traffic {
  std::mutex mutex;
  std::map<std::pair<int, int>, std::size_t> bytes;
};

double value_of(int rank, std::size_t i) { return 0.1 * (rank + 1) + static_cast<double>(i % 97); }

/// Where a tensor lies: input and output in one buffer, apart, or, on ranks that have an arena, in
/// one buffer that the host's ranks reach in place.
enum class Lies { kInPlace, kApart, kInArena };

/// All-reduces of float32, one after the other; returns the bits of the results.
std::vector<double> sum_on(Runtime& runtime, DeviceUser& user, int rank, const std::string& name,
                           std::size_t count, Lies lies, Status* status = nullptr) {
  std::shared_ptr<std::byte> shared;
  if (lies == Lies::kInArena) {
    auto allocated = runtime.allocate_on_device(std::max<std::size_t>(count, 1) * sizeof(float));
    if (allocated.ok()) shared = *std::move(allocated);
  }
  std::byte* const input =
      shared != nullptr ? shared.get() : user.allocate(DataType::kFloat32, count);
  std::byte* const output = lies == Lies::kApart ? user.allocate(DataType::kFloat32, count) : input;
  user.fill(DataType::kFloat32, input, count, [=](std::size_t i) { return value_of(rank, i); });
  const auto work =
      runtime.submit(on_device(user, OperationKind::kAllreduce, name, DataType::kFloat32, input,
                               output, {static_cast<std::int64_t>(count)}));
  const Status done = work.ok() ? finish(user, **work) : Status(work.error());
  if (status != nullptr) {
    *status = done;
    return {};
  }
  EXPECT_TRUE(done.ok()) << done.error().message;
  return user.read(DataType::kFloat32, output, count);
}

class OverHosts : public testing::TestWithParam<Place> {
 protected:
  int size() const { return static_cast<int>(GetParam().hosts.size()); }
  /// A piece in the network phase, which `rank` sends off its host.
  bool is_piece(int rank, const FaultyCall& call) const {
    const std::vector<int>& hosts = GetParam().hosts;
    return running_ && call.kind == FaultyCall::Kind::kSend && call.length > 1000 &&
           hosts[static_cast<std::size_t>(rank)] != hosts[static_cast<std::size_t>(call.peer)];
  }
  DeviceSet devices_;
  /// Set when all ranks have measured the links; earlier messages do not count.
  std::atomic<bool> running_ = false;
  std::barrier<> started_{size()};

  void all_have_started() {
    started_.arrive_and_wait();
    running_ = true;
  }

  /// An all-reduce of many pieces fails on every rank, with a message like `message`.
  void expect_failures(const LocalWorldOptions& options,
                       const testing::Matcher<std::string>& message) {
    run_local_world(
        size(),
        [&](int rank, Runtime& runtime) {
          all_have_started();
          DeviceUser user(runtime);
          Status status;
          sum_on(runtime, user, rank, "x", 1 << 20, Lies::kInPlace, &status);
          ASSERT_FALSE(status.ok());
          EXPECT_THAT(status.error().message, message);
        },
        options);
  }
};
INSTANTIATE_TEST_SUITE_P(Places, OverHosts, testing::ValuesIn(kPlaces),
                         [](const auto& place) { return std::string(place.param.name); });

TEST_P(OverHosts, ManyPiecesAreRightAndAlikeOnAllRanks) {
  constexpr std::size_t kMiddle = kSanitized ? 50'001 : 300'001;
  constexpr std::size_t kLarge = kSanitized ? 100'003 : 700'003;
  constexpr std::size_t kCounts[] = {kMiddle, 64 << 10, 40'000, 1, 0, kLarge};
  std::vector<std::vector<std::vector<double>>> results(static_cast<std::size_t>(size()));
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        for (const std::size_t count : kCounts)
          for (const Lies lies : {Lies::kInPlace, Lies::kApart, Lies::kInArena})
            results[static_cast<std::size_t>(rank)].push_back(
                sum_on(runtime, user, rank, fmt::format("{}.{}", count, static_cast<int>(lies)),
                       count, lies));
      },
      options_of(GetParam(), "64K", devices_));
  for (const auto& of_rank : results) EXPECT_EQ(of_rank, results.front());
  for (const std::vector<double>& result : results.front())
    for (std::size_t i = 0; i < result.size(); ++i) {
      double expected = 0;
      for (int rank = 0; rank < size(); ++rank) expected += value_of(rank, i);
      ASSERT_NEAR(result[i], expected, 1e-6 * expected) << i;
    }
}

// An average whose sums no half type can hold, and small values that are lost beside a large one.
TEST_P(OverHosts, HalfTypesAreSummedInFloat32AndRoundedOnce) {
  const auto input = [](DataType type, int rank, std::size_t i) {
    if (i % 3 == 0) return 40'000.0;
    const double large = type == DataType::kFloat16 ? 2048 : 256;
    return i % 3 == 1 ? (rank == 0 ? large : 0.5) : static_cast<double>(i % 31) / 8;
  };
  const auto rounded = [](DataType type, double value) {
    std::byte memory[16] = {};
    store_element(type, memory, value);
    return load_element(type, memory);
  };
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        for (const DataType type : {DataType::kFloat16, DataType::kBFloat16})
          for (const OperationKind kind :
               {OperationKind::kAllreduce, OperationKind::kReduceScatter})
            for (const std::size_t part : {1'003UL, 100'001UL}) {
              const bool scatters = kind == OperationKind::kReduceScatter;
              const std::size_t count = scatters ? part * static_cast<std::size_t>(size()) : part;
              std::byte* const from = user.allocate(type, count);
              std::byte* const to = user.allocate(type, part);
              user.fill(type, from, count, [=](std::size_t i) { return input(type, rank, i); });
              Submission call =
                  on_device(user, kind, fmt::format("{}.{}.{}", to_string(type), scatters, part),
                            type, from, to, {static_cast<std::int64_t>(count)});
              call.signature.op = ReduceOp::kAverage;
              const auto work = runtime.submit(std::move(call));
              ASSERT_TRUE(work.ok());
              const Status done = finish(user, **work);
              ASSERT_TRUE(done.ok()) << done.error().message;
              const std::vector<double> results = user.read(type, to, part);
              for (std::size_t i = 0; i < part; ++i) {
                const std::size_t at = scatters ? part * static_cast<std::size_t>(rank) + i : i;
                float sum = 0;
                for (int r = 0; r < size(); ++r)
                  sum += static_cast<float>(rounded(type, input(type, r, at)));
                sum *= static_cast<float>(1.0 / size());
                ASSERT_EQ(results[i], rounded(type, static_cast<double>(sum)))
                    << to_string(type) << ", element " << at << " of " << count;
              }
            }
      },
      options_of(GetParam(), "64K", devices_));
}

TEST_P(OverHosts, OnlyTheNetworksPartIsPinned) {
  constexpr std::size_t kCount = 512 << 10;
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        sum_on(runtime, user, rank, "x", kCount, Lies::kInPlace);
        const auto& accelerator = dynamic_cast<EmulatedAccelerator&>(*runtime.accelerator());
        // Four pipeline slots, each with at most as many slices as ranks and a chunk per host, and
        // two further slots. Without windows, a pipeline slot also has the others' inputs.
        // Unpipelined, it would take 2 MiB or more.
        EXPECT_LE(accelerator.bytes_pinned(), GetParam().direct ? 0 : std::size_t{1} << 20);
      },
      options_of(GetParam(), "16K", devices_));
}

TEST_P(OverHosts, EachHostsBytesCrossOnce) {
  constexpr std::size_t kCount = 600'000;
  const Place& place = GetParam();
  Traffic traffic;
  LocalWorldOptions options = options_of(place, "64K", devices_);
  decorate(options, [&](int rank, const FaultyCall& call) {
    const std::lock_guard lock(traffic.mutex);
    if (running_ && call.kind == FaultyCall::Kind::kSend)
      traffic.bytes[{rank, call.peer}] += call.length;
    if (is_piece(rank, call)) {
      EXPECT_LE(call.length, 64U << 10);
    }
    return Fault::kNone;
  });
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        all_have_started();
        DeviceUser user(runtime);
        sum_on(runtime, user, rank, "x", kCount, Lies::kInPlace);
      },
      options);
  std::map<int, std::size_t> across, inside, sent;  // by host, by host, by rank
  for (const auto& [ranks, bytes] : traffic.bytes) {
    const int from = place.hosts[static_cast<std::size_t>(ranks.first)];
    const int to = place.hosts[static_cast<std::size_t>(ranks.second)];
    (from == to ? inside : across)[from] += bytes;
    if (from != to) sent[ranks.first] += bytes;
  }
  const auto hosts = static_cast<double>(across.size());
  for (const auto& [host, bytes] : across)
    EXPECT_NEAR(static_cast<double>(bytes), 2 * 4.0 * kCount * (hosts - 1) / hosts,
                0.03 * 4 * kCount)
        << "host " << host;
  for (const auto& [host, bytes] : inside) {
    // Only signals; without windows, also each block's own pieces.
    if (place.maps) {
      EXPECT_LT(bytes, 4 * kCount / 20) << "host " << host;
    }
  }
  // Ranks that share a device leave the network to the lowest of them.
  for (std::size_t rank = 1; rank < place.devices.size(); ++rank)
    EXPECT_EQ(sent.contains(static_cast<int>(rank)), place.devices[rank] != place.devices[rank - 1])
        << "rank " << rank;
}

TEST_P(OverHosts, DeterministicSumsDoNotDependOnWhatTheyAreFusedWith) {
  LocalWorldOptions options = options_of(GetParam(), "4K", devices_);
  options.variables["KOLO_DETERMINISTIC"] = "1";
  constexpr std::size_t kCount = 5000;
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        const auto alone = sum_on(runtime, user, rank, "alone", kCount, Lies::kInPlace);
        std::vector<std::byte*> tensors;
        std::vector<Submission> calls;
        for (const std::size_t count : {std::size_t{333}, kCount, std::size_t{70'000}}) {
          tensors.push_back(user.allocate(DataType::kFloat32, count));
          user.fill(DataType::kFloat32, tensors.back(), count,
                    [=](std::size_t i) { return value_of(rank, i); });
          calls.push_back(on_device(user, OperationKind::kAllreduce, fmt::format("t{}", count),
                                    DataType::kFloat32, tensors.back(), tensors.back(),
                                    {static_cast<std::int64_t>(count)}));
        }
        auto works = runtime.submit_group(std::move(calls), "group");
        ASSERT_TRUE(works.ok()) << works.error().message;
        for (const auto& work : *works) ASSERT_TRUE(finish(user, *work).ok());
        EXPECT_EQ(user.read(DataType::kFloat32, tensors[1], kCount), alone);
      },
      options);
}

TEST_P(OverHosts, ADeviceThatFailsOnTheWayFailsAllRanks) {
  const Place& place = GetParam();
  const int culprit =
      size() - (place.devices.back() == place.devices[place.devices.size() - 2] ? 2 : 1);
  LocalWorldOptions options = options_of(GetParam(), "16K", devices_);
  std::atomic<int> sent = 0;
  decorate(options, [&](int rank, const FaultyCall& call) {
    if (rank == culprit && is_piece(rank, call) && ++sent == 5)
      devices_.of[static_cast<std::size_t>(culprit)]->fail();
    return Fault::kNone;
  });
  expect_failures(options, AllOf(HasSubstr("illegal memory access"), HasSubstr("rank")));
  EXPECT_GE(sent, 5);
}

TEST_P(OverHosts, AMessageThatFailsOnTheWayFailsAllRanks) {
  const int culprit = 0;
  LocalWorldOptions options = options_of(GetParam(), "16K", devices_);
  std::atomic<int> sent = 0;
  decorate(options, [&](int rank, const FaultyCall& call) {
    const bool fails = rank == culprit && is_piece(rank, call) && ++sent == 5;
    return fails ? Fault::kFail : Fault::kNone;
  });
  expect_failures(options, AllOf(HasSubstr(fmt::format("rank {}", culprit)),
                                 HasSubstr("allreduce_hierarchical")));
}

TEST_P(OverHosts, APeerThatIsLostOnTheWayFailsAllRanks) {
  const int lost = size() - 1;
  std::latch others{lost};
  LocalWorldOptions options = options_of(GetParam(), "16K", devices_);
  std::atomic<int> sent = 0;
  options.decorate = [&, before = std::move(options.decorate)](int rank,
                                                               std::unique_ptr<Transport> inner) {
    if (before) inner = before(rank, std::move(inner));
    auto itself = std::make_shared<FaultyTransport*>();
    auto faulty = std::make_unique<FaultyTransport>(
        std::move(inner), [&, rank, itself](const FaultyCall& call) {
          if (rank == 0 && is_piece(rank, call) && ++sent == 5) (*itself)->lose(lost);
          return Fault::kNone;
        });
    *itself = faulty.get();
    return faulty;
  };
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        all_have_started();
        DeviceUser user(runtime);
        // The rank is alive, but no other rank talks to it any more.
        std::jthread end;
        if (rank == lost)
          end = std::jthread([&] {
            others.wait();
            runtime.abort("is cut off");
          });
        Status status;
        sum_on(runtime, user, rank, "x", 1 << 20, Lies::kInPlace, &status);
        if (rank != lost) others.count_down();
        ASSERT_FALSE(status.ok());
        if (rank != lost) {
          EXPECT_THAT(status.error().message, HasSubstr(fmt::format("rank {}", lost)));
        }
      },
      options);
}

// Results come back on a stream of their own: while a piece is held before it leaves the device,
// earlier pieces come back.
TEST(TwoHosts, WhatComesBackDoesNotWaitForWhatLeaves) {
  const Place place = {"TwoByOne", {0, 1}, {0, 1}};
  DeviceSet devices;
  // Both hosts' chunks: the amount that is submitted between two polls for returned pieces.
  static constexpr std::size_t kBlock = 256 << 10;
  constexpr std::size_t kBlocks = 8;
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        DeviceUser user(runtime);
        std::byte* const input = user.allocate(DataType::kFloat32, kBlocks * kBlock);
        std::byte* const output = user.allocate(DataType::kFloat32, kBlocks * kBlock);
        user.fill(DataType::kFloat32, input, kBlocks * kBlock, [](std::size_t) { return 1; });
        const auto block = [](std::byte* memory, std::size_t number) {
          constexpr std::size_t kBytes = kBlock * sizeof(float);
          return std::span(memory + number * kBytes, kBytes);
        };
        std::promise<void> passed, released;
        passed.set_value();
        EmulatedDevice& device = *devices.of[static_cast<std::size_t>(rank)];
        if (rank == 0) {
          device.hold_reads_of(block(input, kBlocks - 1), released.get_future());
          device.hold_writes_to(block(output, kBlocks - 2), passed.get_future());
        }
        const auto work =
            runtime.submit(on_device(user, OperationKind::kAllreduce, "x", DataType::kFloat32,
                                     input, output, {static_cast<std::int64_t>(kBlocks * kBlock)}));
        ASSERT_TRUE(work.ok()) << work.error().message;
        if (rank == 0) {
          device.held_reads().wait(0);
          device.held_writes().wait(0);
        }
        released.set_value();
        const Status done = finish(user, **work);
        ASSERT_TRUE(done.ok()) << done.error().message;
        const auto sums = user.read(DataType::kFloat32, output, kBlocks * kBlock);
        EXPECT_EQ(sums, std::vector<double>(kBlocks * kBlock, 2.0));
      },
      options_of(place, "512K", devices));
}

}  // namespace
}  // namespace kolo::test::device_hosts_test
