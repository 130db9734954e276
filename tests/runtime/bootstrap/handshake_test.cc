// The handshake among threads: what arrives, and each rank's error when they do not fit.
#include "runtime/bootstrap/handshake.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"
#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/single_bootstrap.h"
#include "runtime/bootstrap/store_bootstrap.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

namespace kolo::handshake_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Handshake handshake_of(int rank) {
  Handshake handshake;
  handshake.transport = "loopback";
  handshake.address = fmt::format("address {}", rank);
  handshake.settings = {"A=1", "B=2"};
  handshake.info = {"host", "name", 100 + rank, "namespace", {rank, rank + 8}};
  return handshake;
}

using Change = std::function<void(int rank, Handshake&)>;

/// The result of each rank, after `change` has altered what the rank sends.
std::vector<Result<std::vector<Handshake>>> shake_hands(int size, const Change& change) {
  MemoryStore store;
  std::vector<Result<std::vector<Handshake>>> results(
      static_cast<std::size_t>(size), Result<std::vector<Handshake>>(std::vector<Handshake>{}));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      StoreBootstrap bootstrap(store, rank, size);
      Handshake mine = handshake_of(rank);
      change(rank, mine);
      results[static_cast<std::size_t>(rank)] =
          exchange_handshake(bootstrap, std::move(mine), Deadline::after(std::chrono::seconds(60)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void expect_mismatch(const std::vector<Result<std::vector<Handshake>>>& results,
                     const testing::Matcher<const std::string&>& message) {
  for (const auto& result : results) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(result.error().message, message);
  }
}

TEST(Handshake, EveryRankLearnsOfAll) {
  for (const auto& result : shake_hands(5, [](int, Handshake&) {})) {
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_EQ(result->size(), 5U);
    for (int rank = 0; rank < 5; ++rank) {
      const Handshake& handshake = (*result)[static_cast<std::size_t>(rank)];
      const Handshake expected = handshake_of(rank);
      EXPECT_EQ(handshake.wire_version, kWireVersion);
      EXPECT_EQ(handshake.transport, expected.transport);
      EXPECT_EQ(handshake.address, expected.address);
      EXPECT_EQ(handshake.info.host_id, "host");
      EXPECT_EQ(handshake.info.pid, 100 + rank);
      EXPECT_EQ(handshake.info.pid_namespace, "namespace");
      EXPECT_EQ(handshake.info.cores, expected.info.cores);
    }
  }
}

TEST(Handshake, ADifferentWireVersionIsAMismatchOnEveryRank) {
  const auto results = shake_hands(3, [](int rank, Handshake& handshake) {
    if (rank == 1) handshake.wire_version = kWireVersion + 1;
  });
  expect_mismatch(results, AllOf(HasSubstr("the wire version"),
                                 HasSubstr(fmt::format("ranks 0, 2 have '{}'", kWireVersion)),
                                 HasSubstr(fmt::format("rank 1 has '{}'", kWireVersion + 1))));
}

TEST(Handshake, ADifferentTransportOrSettingNamesRanksAndValues) {
  expect_mismatch(shake_hands(2,
                              [](int rank, Handshake& h) {
                                if (rank == 1) h.transport = "ucx";
                              }),
                  AllOf(HasSubstr("rank 0 has 'loopback'"), HasSubstr("rank 1 has 'ucx'")));
  expect_mismatch(shake_hands(3,
                              [](int rank, Handshake& h) {
                                if (rank == 0) h.settings[1] = "B=3";
                              }),
                  AllOf(HasSubstr("rank 0 has 'B=3'"), HasSubstr("ranks 1, 2 have 'B=2'")));
  expect_mismatch(shake_hands(2,
                              [](int rank, Handshake& h) {
                                if (rank == 0) h.settings.pop_back();
                              }),
                  AllOf(HasSubstr("number of settings"), HasSubstr("rank 0 has '1'")));
}

TEST(Handshake, ManyRanksMakeAShortMessage) {
  expect_mismatch(shake_hands(40,
                              [](int rank, Handshake& h) {
                                if (rank == 7) h.transport = "ucx";
                              }),
                  AllOf(HasSubstr("ranks 0, 1, 2, 3, … have"), Not(HasSubstr("39"))));
}

/// A bootstrap whose other rank sends `bytes`.
class GarbageBootstrap final : public Bootstrap {
 public:
  explicit GarbageBootstrap(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string description() const override { return "garbage"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Result<std::vector<std::string>> exchange(std::string_view, std::string blob, Deadline) override {
    sent_ = blob;
    return std::vector<std::string>{std::move(blob), bytes_};
  }
  const std::string& sent() const { return sent_; }

 private:
  std::string bytes_;
  std::string sent_;
};

TEST(Handshake, GarbageIsAMismatchAndNothingWorse) {
  GarbageBootstrap honest("");
  ASSERT_FALSE(exchange_handshake(honest, handshake_of(0), Deadline::never()).ok());
  const std::string good = honest.sent();
  std::vector<std::string> cases = {"",
                                    "x",
                                    std::string(1000, '\xff'),
                                    std::string(8, '\0'),
                                    join_fields({"1"}),
                                    join_fields({"1", "loopback", "a", "b"})};
  for (std::size_t length = 0; length < good.size(); ++length) {
    cases.push_back(good.substr(0, length));
  }
  for (const std::string& bytes : cases) {
    GarbageBootstrap bootstrap(bytes);
    const auto result = exchange_handshake(bootstrap, handshake_of(0), Deadline::never());
    ASSERT_FALSE(result.ok()) << bytes.size();
    EXPECT_EQ(result.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(result.error().message, HasSubstr("rank"));
  }
}

TEST(Handshake, AComplaintOfOneRankStopsAll) {
  const auto results = shake_hands(3, [](int rank, Handshake& mine) {
    if (rank == 2) mine.complaint = "rank 2: no such folder";
  });
  for (const auto& result : results) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(result.error().message, "rank 2: no such folder");
  }
}

TEST(Handshake, ARankThatCannotStartIsTheErrorOfTheOthers) {
  MemoryStore store;
  std::thread refuses([&] {
    StoreBootstrap bootstrap(store, 1, 2);
    refuse_handshake(bootstrap, handshake_of(1).info,
                     KOLO_ERROR(kUnsupported, "there is no device eth7"),
                     Deadline::after(std::chrono::seconds(60)));
  });
  StoreBootstrap bootstrap(store, 0, 2);
  const auto result =
      exchange_handshake(bootstrap, handshake_of(0), Deadline::after(std::chrono::seconds(60)));
  refuses.join();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "rank 1 (host name, pid 101) cannot start: there is no device eth7");
}

TEST(Handshake, FlippedBytesNeverCrash) {
  GarbageBootstrap honest("");
  ASSERT_FALSE(exchange_handshake(honest, handshake_of(0), Deadline::never()).ok());
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = honest.sent();
    for (int flips = 0; flips < 3; ++flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    GarbageBootstrap bootstrap(bytes);
    const auto result = exchange_handshake(bootstrap, handshake_of(0), Deadline::never());
    // Bytes that look like an error report of that rank are taken for one.
    EXPECT_TRUE(result.ok() || result.error().code == ErrorCode::kMismatch ||
                result.error().code == ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kolo::handshake_test
