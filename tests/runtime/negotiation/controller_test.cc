// A rank's reaction to a silent coordinator, and the coordinator's to splits that no message holds.
// Tests of whole runtimes cover the rest of the controller.
#include "runtime/negotiation/controller.h"

#include "runtime/base/plain_bytes.h"
#include "runtime/submission/split_table.h"
#include "tests/support/manual_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace kolo::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

/// Keeps the message that was sent last.
class RecordingTransport final : public ManualTransport {
 public:
  std::string last;
  Status post_message(int, std::span<const std::byte> message) override {
    last.assign(reinterpret_cast<const char*>(message.data()), message.size());
    return {};
  }
};

/// Rank 1 of two.
class SilentCoordinator : public testing::Test {
 protected:
  static constexpr auto kTimeout = 100s;
  static constexpr auto kMore = 30s;  ///< more than the grace period

  void submit(const std::string& name, OperationKind kind = OperationKind::kAllreduce) {
    auto entry = std::make_unique<Entry>();
    entry->name = name;
    entry->signature.kind = kind;
    entry->submitted_at = kStart;  // however long it has waited
    controller_.add(std::move(entry));
    ASSERT_TRUE(controller_.announce(kStart, /*flush=*/true).ok());
  }
  /// Whether the pending tensors are announced once `bytes` more are submitted.
  bool is_batch(std::int64_t bytes, bool on_device) {
    auto entry = std::make_unique<Entry>();
    entry->name = std::to_string(++batched_);
    entry->signature.type = DataType::kUInt8;
    entry->signature.shape = {bytes};
    entry->signature.on_device = on_device;
    entry->submitted_at = kStart;
    controller_.add(std::move(entry));
    const auto announced = controller_.announce(kStart, /*flush=*/false);
    return announced.ok() && *announced;
  }
  Status look(Controller::Clock::duration after, bool is_busy = false) {
    return controller_.check_timeouts(kStart + after, is_busy);
  }
  /// Rank 0 decides on another tensor.
  void decide(const std::string& name) {
    submit(name);
    respond({.name = name, .signature = {}, .contributors = 2});
  }
  void respond(const Response& response) {
    std::span<const Response> rest(&response, 1);
    const std::uint64_t head[] = {++told_, 1};
    const std::string bytes = std::string(bytes_of(head)) + encode_first(rest);
    ASSERT_TRUE(
        controller_.on_message(0, {MessageKind::kResponses, 0, std::as_bytes(std::span(bytes))})
            .ok());
  }
  /// The single entry of the next list.
  Agreed take_one() {
    std::vector<Agreed> agreed;
    if (!controller_.take_agreed(agreed) || agreed.size() != 1) {
      ADD_FAILURE() << agreed.size();
      return {nullptr, std::make_unique<Entry>()};
    }
    return std::move(agreed.front());
  }
  const std::string& last_sent() const { return transport_.last; }

 private:
  const Controller::Clock::time_point kStart{1000s};
  const Config config_ = [] {
    Config config;
    config.operation_timeout_s = kTimeout / 1s;
    return config;
  }();
  const Log log_{"off"};
  int batched_ = 0;
  std::uint64_t told_ = 0;
  RecordingTransport transport_;
  const Communicator communicator_{0, World(1, {RankInfo{}, RankInfo{}})};
  ControlPlane control_plane_{transport_, communicator_};
  Controller controller_{communicator_, control_plane_, config_, log_};
};

TEST_F(SilentCoordinator, HearsOfBatches) {
  EXPECT_FALSE(is_batch((1 << 20) - 1, false));
  EXPECT_TRUE(is_batch(1, false));
  EXPECT_FALSE(is_batch(4 << 20, true));
  EXPECT_TRUE(is_batch(4 << 20, true)) << "of a device eight times as many";
}

TEST_F(SilentCoordinator, IsNamedAfterTheTimeout) {
  submit("fc1.weight");
  EXPECT_TRUE(look(0s).ok());
  EXPECT_TRUE(look(kTimeout).ok());  // rank 0 expires it by itself then
  const Status status = look(kTimeout + kMore);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(status.error().message,
              HasSubstr("rank 1: rank 0 has not decided on tensor 'fc1.weight' within 100 s"));
}

TEST_F(SilentCoordinator, OwesNothingWhileAgreedOperationsRun) {
  submit("fc1.weight");
  for (auto after = 0s; after < 5 * kTimeout; after += 10s) ASSERT_TRUE(look(after, true).ok());
  EXPECT_TRUE(look(6 * kTimeout).ok());
  EXPECT_TRUE(look(7 * kTimeout).ok());
  EXPECT_FALSE(look(7 * kTimeout + kMore).ok());
}

TEST_F(SilentCoordinator, IsNotSilentWhenItDecidesOnOthers) {
  submit("fc1.weight");
  for (auto after = 0s; after < 5 * kTimeout; after += kTimeout) {
    decide("other" + std::to_string(after / 1s));
    ASSERT_TRUE(look(after).ok());
  }
  EXPECT_TRUE(look(5 * kTimeout).ok());
  EXPECT_TRUE(look(6 * kTimeout).ok());
  EXPECT_FALSE(look(6 * kTimeout + kMore).ok());
}

TEST_F(SilentCoordinator, OwesAJoinNothing) {
  submit("kolo/join", OperationKind::kJoin);
  EXPECT_TRUE(look(0s).ok());
  EXPECT_TRUE(look(100 * kTimeout).ok());
  // Later submissions are counted from then on.
  submit("fc1.weight");
  EXPECT_TRUE(look(100 * kTimeout + 10s).ok());
  EXPECT_FALSE(look(101 * kTimeout + kMore).ok());
}

TEST_F(SilentCoordinator, WhatCrossesAJoinedRanksZerosIsForTheNextTime) {
  submit("kolo/join", OperationKind::kJoin);
  submit("fc1.weight");  // by another thread, after rank 0 has decided without this rank
  Response decided;
  decided.name = "fc1.weight";
  decided.contributors = 1;
  decided.participants = 1;
  decided.missing = {1};
  respond(decided);
  const Agreed zeros = take_one();
  EXPECT_TRUE(zeros.entry->absent);
  EXPECT_EQ(zeros.entry->work, nullptr);
  decided.contributors = 2;
  decided.participants = 2;
  decided.missing.clear();
  respond(decided);
  EXPECT_FALSE(take_one().entry->absent);
}

TEST_F(SilentCoordinator, RemembersNothingThatItHasDecidedWithoutARank) {
  submit("kolo/join", OperationKind::kJoin);
  Response decided{.name = "fc1.weight", .signature = {}, .contributors = 1};
  decided.missing = {1};
  respond(decided);
  EXPECT_TRUE(take_one().entry->absent);
  submit("fc1.weight");
  EXPECT_THAT(last_sent(), HasSubstr("fc1.weight")) << "no slot stands for it";
  decided.missing.clear();
  respond(decided);
  take_one();
  submit("fc1.weight");
  EXPECT_THAT(last_sent(), Not(HasSubstr("fc1.weight")));
}

/// Records the longest control message.
class MeasuringTransport final : public ManualTransport {
 public:
  std::size_t longest = 0;
  Status post_message(int, std::span<const std::byte> message) override {
    longest = std::max(longest, message.size());
    return {};
  }
};

/// Rank 0 of many.
class CoordinatorOfManyRanks : public testing::Test {
 protected:
  /// Every rank announces an alltoall with the same splits. Returns what rank 0 has agreed on.
  Agreed agree(const std::string& name, const Splits& splits) {
    const int ranks = static_cast<int>(splits.size());
    const Config config;
    const Log log("off");
    const Communicator communicator(0, World(0, std::vector<RankInfo>(splits.size())));
    ControlPlane control_plane(transport_, communicator);
    Controller controller(communicator, control_plane, config, log);
    const auto now = Controller::Clock::now();
    auto entry = std::make_unique<Entry>();
    entry->name = name;
    entry->signature = {.kind = OperationKind::kAlltoall, .shape = {}};
    entry->splits = splits;
    Request request{.name = name, .signature = entry->signature, .splits = shortened(splits)};
    controller.add(std::move(entry));
    EXPECT_TRUE(controller.announce(now, /*flush=*/true).ok());
    for (request.rank = 1; request.rank < ranks; ++request.rank) {
      std::span<const Request> rest(&request, 1);
      const std::string bytes = encode_first(rest);
      const Message message{MessageKind::kRequests, 0, std::as_bytes(std::span(bytes))};
      EXPECT_TRUE(controller.on_message(request.rank, message).ok());
    }
    EXPECT_TRUE(controller.decide().ok());
    std::vector<Agreed> agreed;
    EXPECT_TRUE(controller.take_agreed(agreed));
    EXPECT_EQ(agreed.size(), 1U);
    return std::move(agreed.at(0));
  }
  /// `rows` to every second rank, so that no two neighbours are equal.
  static Splits to_every_second(std::int64_t rows) {
    Splits splits(1500, 0);
    for (std::size_t rank = 0; rank < splits.size(); rank += 2) splits[rank] = rows;
    return splits;
  }

  MeasuringTransport transport_;
};

TEST_F(CoordinatorOfManyRanks, FailsSplitsThatNoMessageHolds) {
  const Agreed tokens = agree("tokens", to_every_second(std::int64_t{1} << 45));  // 7 bytes, or 1
  ASSERT_TRUE(tokens.response->error);
  EXPECT_THAT(
      tokens.response->error->message,
      testing::MatchesRegex("tensor 'tokens': the splits of 1500 ranks take 90.* bytes, and "
                            "a message of the negotiation holds 28.*process sets of fewer "
                            "ranks"));
}

TEST_F(CoordinatorOfManyRanks, TellsSplitsThatAMessageHolds) {
  EXPECT_FALSE(agree("fewer", to_every_second(100)).response->error);
  EXPECT_GT(transport_.longest, 2'000'000U);
  EXPECT_LE(transport_.longest, Transport::kLargestMessage);
}

// With a number for every pair of ranks this would take 8 GiB.
TEST_F(CoordinatorOfManyRanks, TellsEvenSplitsInOneNumber) {
  const Agreed even = agree("even", Splits(32768, 3));
  EXPECT_FALSE(even.response->error);
  EXPECT_EQ(even.response->splits, SplitTable{3});
  EXPECT_LT(transport_.longest, 200U);
}

}  // namespace
}  // namespace kolo::test
