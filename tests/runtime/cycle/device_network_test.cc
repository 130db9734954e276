// How ranks on several emulated hosts agree on whether network cards read and write their devices'
// memory, and what they do if one card cannot.
#include "tests/support/device_world.h"
#include "tests/support/emulated_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test::device_network_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr int kSize = 4;
constexpr std::size_t kCount = 100'003;

/// Ranks 0 and 1 on one host, 2 and 3 on another; each has a card, which `card` describes.
LocalWorldOptions with_cards(const std::string& mode,
                             std::function<EmulatedCardOptions(int rank)> card, bool maps = true) {
  LocalWorldOptions options;
  options.variables = {{"KOLO_DEVICE_CHUNK", "16K"},
                       {"KOLO_DEVICE_MEMORY", "16M"},
                       {"KOLO_DEVICE_ARENA", "0"},
                       {"KOLO_GPUDIRECT", mode}};
  options.hosts = {0, 0, 1, 1};
  std::vector<std::shared_ptr<EmulatedDevice>> devices;
  for (int rank = 0; rank < kSize; ++rank) {
    devices.push_back(std::make_shared<EmulatedDevice>(static_cast<std::uint8_t>(rank + 1)));
    if (!maps) devices.back()->forbid_import();
  }
  options.accelerator = [devices](int rank) -> std::unique_ptr<Accelerator> {
    return std::make_unique<EmulatedAccelerator>(devices[static_cast<std::size_t>(rank)], 0);
  };
  options.decorate = [devices, card = std::move(card)](int rank, std::unique_ptr<Transport> inner) {
    return std::make_unique<EmulatedCard>(std::move(inner), devices[static_cast<std::size_t>(rank)],
                                          card(rank));
  };
  return options;
}

EmulatedCardOptions all_reach(int /*rank*/) { return {}; }
EmulatedCardOptions rank_2_does_not(int rank) {
  return {.refusal = rank == 2 ? "there is no card" : ""};
}

struct Outcome {
  std::vector<double> sum;
  std::size_t pinned = 0;
  std::string network;
};

Result<Outcome> sum_on(Runtime& runtime, int rank, std::uint32_t process_set = 0) {
  DeviceUser user(runtime);
  std::byte* const memory = user.allocate(DataType::kFloat32, kCount);
  user.fill(DataType::kFloat32, memory, kCount,
            [=](std::size_t i) { return 0.1 * (rank + 1) + static_cast<double>(i % 97); });
  Submission call = on_device(user, OperationKind::kAllreduce, "x", DataType::kFloat32, memory,
                              memory, {static_cast<std::int64_t>(kCount)});
  call.process_set = process_set;
  const auto work = submit(runtime, std::move(call));
  if (const Status done = finish(user, *work); !done.ok()) return done.error();
  const auto& accelerator = dynamic_cast<EmulatedAccelerator&>(*runtime.accelerator());
  return Outcome{user.read(DataType::kFloat32, memory, kCount), accelerator.bytes_pinned(),
                 runtime.info().device_network};
}

/// The outcome by rank.
std::vector<Outcome> run(const LocalWorldOptions& options) {
  std::vector<Outcome> outcomes(kSize);
  run_local_world(
      kSize,
      [&](int rank, Runtime& runtime) {
        auto outcome = sum_on(runtime, rank);
        ASSERT_TRUE(outcome.ok()) << outcome.error().message;
        outcomes[static_cast<std::size_t>(rank)] = *std::move(outcome);
      },
      options);
  return outcomes;
}

TEST(DeviceNetwork, CardsCarryWhatPinnedMemoryDoesToTheSameBits) {
  const auto direct = run(with_cards("auto", all_reach));
  const auto staged = run(with_cards("off", all_reach));
  for (int rank = 0; rank < kSize; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    EXPECT_EQ(direct[i].sum, staged.front().sum);
    EXPECT_EQ(staged[i].sum, staged.front().sum);
    EXPECT_EQ(direct[i].pinned, 0U);
    EXPECT_GT(staged[i].pinned, 0U);
    EXPECT_EQ(direct[i].network, "by GPUDirect RDMA: an emulated card");
    EXPECT_EQ(staged[i].network, "through pinned memory of the hosts: KOLO_GPUDIRECT=off");
  }
}

TEST(DeviceNetwork, OneRankWithoutMakesAllStage) {
  const auto outcomes = run(with_cards("auto", rank_2_does_not));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.sum, outcomes.front().sum);
    EXPECT_GT(outcome.pinned, 0U);
    EXPECT_EQ(outcome.network, "through pinned memory of the hosts: rank 2: there is no card");
  }
}

// Checksums are made of messages in host memory, also between devices of one host.
TEST(DeviceNetwork, ChecksumsStageAllAndAreRefusedWhereCardsAreForced) {
  const auto with_checksums = [](const std::string& mode) {
    LocalWorldOptions options = with_cards(mode, all_reach);
    options.variables["KOLO_WIRE_CHECK"] = "1";
    return options;
  };
  const auto outcomes = run(with_checksums("auto"));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.sum, outcomes.front().sum);
    EXPECT_NEAR(outcome.sum[5], 0.1 * (1 + 2 + 3 + 4) + 4 * 5, 1e-4);
    EXPECT_GT(outcome.pinned, 0U);
    EXPECT_THAT(outcome.network, HasSubstr("KOLO_WIRE_CHECK=1"));
  }
  for (const Error& error : refusals(kSize, with_checksums("on")))
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("KOLO_GPUDIRECT=on"), HasSubstr("KOLO_WIRE_CHECK=1")));
}

// Cards serve only the network: messages inside a host go through host memory.
TEST(DeviceNetwork, RanksOfAHostThatDoNotMapEachOtherStage) {
  for (const Outcome& outcome : run(with_cards("on", all_reach, false))) {
    EXPECT_GT(outcome.pinned, 0U);
    EXPECT_THAT(outcome.network, StartsWith("by GPUDirect RDMA"));
  }
}

TEST(DeviceNetwork, ProcessSetsTakeTheCards) {
  LocalWorldOptions options = with_cards("auto", all_reach);
  options.process_sets = {{0, 2}, {1, 2, 3}};
  run_local_world(
      kSize,
      [](int rank, Runtime& runtime) {
        for (const std::uint32_t set : {1U, 2U}) {
          const auto ranks = runtime.ranks_of(set);
          ASSERT_TRUE(ranks.ok()) << ranks.error().message;
          if (std::find(ranks->begin(), ranks->end(), rank) == ranks->end()) continue;
          const auto outcome = sum_on(runtime, rank, set);
          ASSERT_TRUE(outcome.ok()) << outcome.error().message;
          EXPECT_EQ(outcome->pinned, 0U) << "set " << set;
          double expected = 0;
          for (const int other : *ranks) expected += 0.1 * (other + 1) + 5;
          EXPECT_NEAR(outcome->sum[5], expected, 1e-5);
        }
      },
      options);
}

TEST(DeviceNetwork, IsAnErrorOnAllRanksWhereItIsForcedAndCannotBe) {
  for (const bool has_devices : {true, false}) {
    LocalWorldOptions options = with_cards("on", rank_2_does_not);
    if (!has_devices) options.accelerator = [](int) { return std::unique_ptr<Accelerator>(); };
    std::atomic<int> refusals = 0;
    options.refused = [&](const Error& error) {
      ++refusals;
      EXPECT_EQ(error.code, ErrorCode::kUnsupported);
      EXPECT_THAT(
          error.message,
          AllOf(HasSubstr("KOLO_GPUDIRECT=on"),
                HasSubstr(has_devices ? "rank 2: there is no card"
                                      : "rank 0: it has no CUDA device: the test gives it none")));
    };
    run_local_world(
        kSize, [](int, Runtime&) { ADD_FAILURE() << "it started"; }, options);
    EXPECT_EQ(refusals, kSize);
  }
}

TEST(DeviceNetwork, MemoryThatCannotBeRegisteredLaterFailsAllRanks) {
  LocalWorldOptions options =
      with_cards("auto", [](int rank) { return EmulatedCardOptions{.registers = rank != 1}; });
  run_local_world(
      kSize,
      [](int rank, Runtime& runtime) {
        const auto outcome = sum_on(runtime, rank);
        ASSERT_FALSE(outcome.ok());
        EXPECT_THAT(outcome.error().message,
                    AllOf(HasSubstr("rank 1"), HasSubstr("no room to register"),
                          HasSubstr("KOLO_GPUDIRECT=off")));
      },
      options);
}

TEST(DeviceNetwork, NothingIsSaidWhereNoDeviceMemoryGoesToOtherHosts) {
  LocalWorldOptions one_host = with_cards("on", all_reach);
  one_host.hosts.clear();
  for (const Outcome& outcome : run(one_host)) EXPECT_THAT(outcome.network, IsEmpty());

  LocalWorldOptions no_devices = with_cards("auto", all_reach);
  no_devices.accelerator = nullptr;
  run_local_world(
      kSize, [](int, Runtime& runtime) { EXPECT_THAT(runtime.info().device_network, IsEmpty()); },
      no_devices);
}

}  // namespace
}  // namespace kolo::test::device_network_test
