// Ranks that are out of step in in-order submission: each rank learns at once which ranks call
// what, whatever path the calls take. Ranks are threads.
#include "tests/support/local_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ostream>
#include <thread>
#include <vector>

namespace kolo::test::ordered_clash_test {
namespace {

/// Two different calls at the same position in the order.
struct Clash {
  const char* name;
  OrderedArguments of_rank_1;
  OrderedArguments of_others;
  const char* text_of_rank_1;
  const char* text_of_others;
};
void PrintTo(const Clash& clash, std::ostream* stream) { *stream << clash.name; }

class OrderedClash : public testing::TestWithParam<Clash> {};
INSTANTIATE_TEST_SUITE_P(
    Calls, OrderedClash,
    testing::Values(Clash{"small and large",
                          {.count = 8},
                          {.count = 100'000},
                          "allreduce of 8 float32 by sum",
                          "allreduce of 100000 float32 by sum"},
                    Clash{"large and small",
                          {.count = 100'000},
                          {.count = 8},
                          "allreduce of 100000 float32 by sum",
                          "allreduce of 8 float32 by sum"},
                    Clash{"large and larger",
                          {.count = 200'000},
                          {.count = 100'000},
                          "allreduce of 200000 float32 by sum",
                          "allreduce of 100000 float32 by sum"},
                    Clash{"other roots",
                          {.kind = OperationKind::kBroadcast, .count = 8, .root = 1},
                          {.kind = OperationKind::kBroadcast, .count = 8, .root = 0},
                          "broadcast of 8 float32 from rank 1",
                          "broadcast of 8 float32 from rank 0"},
                    Clash{"other roots of gathers",
                          {.kind = OperationKind::kGather, .count = 8, .root = 1},
                          {.kind = OperationKind::kGather, .count = 8, .root = 0},
                          "gather of 8 float32 to rank 1",
                          "gather of 8 float32 to rank 0"},
                    Clash{"other roots of large scatters",
                          {.kind = OperationKind::kScatter, .count = 50'000, .root = 1},
                          {.kind = OperationKind::kScatter, .count = 50'000, .root = 0},
                          "scatter of 150000 float32 from rank 1",
                          "scatter of 150000 float32 from rank 0"},
                    Clash{"a scatter and a gather",
                          {.kind = OperationKind::kScatter, .count = 4, .root = 1},
                          {.kind = OperationKind::kGather, .count = 4, .root = 1},
                          "scatter of 12 float32 from rank 1",
                          "gather of 4 float32 to rank 1"},
                    Clash{"a small gather and a large one",
                          {.kind = OperationKind::kGather, .count = 8, .root = 2},
                          {.kind = OperationKind::kGather, .count = 50'000, .root = 2},
                          "gather of 8 float32 to rank 2",
                          "gather of 50000 float32 to rank 2"},
                    Clash{"other kinds",
                          {.kind = OperationKind::kAllgather, .count = 4},
                          {.count = 4},
                          "allgather of 4 float32",
                          "allreduce of 4 float32 by sum"},
                    Clash{"a root that does not wait",
                          {.kind = OperationKind::kBroadcast, .count = 8, .root = 1},
                          {.kind = OperationKind::kBroadcast, .count = 100'000, .root = 1},
                          "broadcast of 8 float32 from rank 1",
                          "broadcast of 100000 float32 from rank 1"},
                    Clash{"a barrier",
                          {.kind = OperationKind::kBarrier},
                          {.count = 100'000},
                          "barrier",
                          "allreduce of 100000 float32 by sum"}),
    [](const auto& clash) {
      std::string name = clash.param.name;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

TEST_P(OrderedClash, NamesBothCallsAtOnce) {
  const auto begun = std::chrono::steady_clock::now();
  run_local_world(3, [&](int rank, Runtime& runtime) {
    std::vector<float> memory(200'000, 1);
    OrderedArguments call = rank == 1 ? GetParam().of_rank_1 : GetParam().of_others;
    call.input = reinterpret_cast<const std::byte*>(memory.data());
    call.output = reinterpret_cast<std::byte*>(memory.data());
    std::vector<float> gathered(200'000);
    if (call.kind != OperationKind::kAllreduce && call.kind != OperationKind::kBroadcast)
      call.output = reinterpret_cast<std::byte*>(gathered.data());
    Status status = runtime.call_ordered(call);
    // A rank that needed nothing from the others learns it with its next call.
    if (status.ok()) status = runtime.call_ordered({.kind = OperationKind::kBarrier});
    ASSERT_FALSE(status.ok());
    // Or another rank has found out first.
    EXPECT_THAT(status.error().code, testing::AnyOf(ErrorCode::kMismatch, ErrorCode::kAborted))
        << status.error().message;
    EXPECT_THAT(status.error().message, testing::HasSubstr(GetParam().text_of_rank_1));
    EXPECT_THAT(status.error().message, testing::HasSubstr(GetParam().text_of_others));
    EXPECT_THAT(status.error().message, testing::HasSubstr("in the same order"));
  });
  // Not after KOLO_OPERATION_TIMEOUT, which is minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
}

/// Calls with the same length and path differ only in their fingerprints.
TEST(OrderedClashOverHosts, EqualLengthsAreToldApart) {
  constexpr int kRanks = 3;
  struct Pair {
    OrderedArguments of_rank_1;
    OrderedArguments of_others;
  };
  const OrderedArguments sum{.count = 60'000};
  OrderedArguments most = sum;
  most.type = DataType::kInt32;
  most.op = ReduceOp::kMax;
  const auto as = [](OperationKind kind, OrderedArguments call) {
    call.kind = kind;
    return call;
  };
  for (const Pair& pair :
       {Pair{most, sum},
        Pair{as(OperationKind::kReduceScatter, most), as(OperationKind::kReduceScatter, sum)},
        Pair{as(OperationKind::kBroadcast, most), as(OperationKind::kBroadcast, sum)},
        Pair{as(OperationKind::kGather, most), as(OperationKind::kGather, sum)},
        Pair{as(OperationKind::kScatter, most), as(OperationKind::kScatter, sum)},
        Pair{as(OperationKind::kAllgather, most), as(OperationKind::kAllgather, sum)}}) {
    LocalWorldOptions options;
    options.hosts = {0, 1, 2};
    run_local_world(
        kRanks,
        [&](int rank, Runtime& runtime) {
          std::vector<float> input(kRanks * 60'000, 1);
          std::vector<float> output(input.size());
          OrderedArguments call = rank == 1 ? pair.of_rank_1 : pair.of_others;
          call.input = reinterpret_cast<const std::byte*>(input.data());
          call.output = reinterpret_cast<std::byte*>(output.data());
          Status status = runtime.call_ordered(call);
          if (status.ok()) status = runtime.call_ordered({.kind = OperationKind::kBarrier});
          ASSERT_FALSE(status.ok());
          EXPECT_THAT(status.error().message, testing::HasSubstr("in the same order"));
          // Ranks that give to a gather may meet in the barrier before its root sees their data.
          const std::string passed = "both call barrier, but not after the same calls";
          if (call.kind == OperationKind::kGather &&
              status.error().message.find(passed) != std::string::npos)
            return;
          EXPECT_THAT(status.error().message, testing::HasSubstr("float32"));
          EXPECT_THAT(status.error().message, testing::HasSubstr("int32"));
        },
        options);
  }
}

/// Two broadcasts that either do not wait for each other, or both do: no message of one matches the
/// other.
struct Roots {
  const char* name;
  bool own;            ///< each rank is the root of its call, or the other rank is
  std::int64_t count;  ///< floats
};
void PrintTo(const Roots& roots, std::ostream* stream) { *stream << roots.name; }

class OrderedRootsOverHosts : public testing::TestWithParam<Roots> {};
INSTANTIATE_TEST_SUITE_P(Calls, OrderedRootsOverHosts,
                         testing::Values(Roots{"both_send", true, 8}, Roots{"both_wait", false, 8},
                                         Roots{"both_offer", true, 3'000'000}),
                         [](const auto& roots) { return std::string(roots.param.name); });

TEST_P(OrderedRootsOverHosts, NamesBothCalls) {
  const auto begun = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::steady_clock::now() - begun; };
  LocalWorldOptions options;
  options.hosts = {0, 1};
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        std::vector<float> values(static_cast<std::size_t>(GetParam().count), 1);
        auto* const bytes = reinterpret_cast<std::byte*>(values.data());
        Status status = runtime.call_ordered({.kind = OperationKind::kBroadcast,
                                              .input = bytes,
                                              .output = bytes,
                                              .count = GetParam().count,
                                              .root = GetParam().own ? rank : 1 - rank});
        // Roots learn it when the others' message has arrived, at the next poll.
        while (status.ok() && elapsed() < std::chrono::seconds(20))
          status = runtime.call_ordered({.kind = OperationKind::kBarrier});
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message, testing::HasSubstr("float32 from rank 0"));
        EXPECT_THAT(status.error().message, testing::HasSubstr("float32 from rank 1"));
        EXPECT_THAT(status.error().message, testing::HasSubstr("in the same order"));
      },
      options);
  EXPECT_LT(elapsed(), std::chrono::seconds(20));
}

// A root on a host waits for nobody, and no later ordered call would match the other's. The set's
// ranks have other numbers than the world's.
TEST(OrderedRootsOfAHost, AreFoundThoughNoOrderedCallFollows) {
  for (const bool one_leaves : {false, true}) {
    LocalWorldOptions options;
    options.process_sets = {{1, 2}};
    std::atomic<int> called = 0;
    run_local_world(
        3,
        [&](int rank, Runtime& runtime) {
          std::vector<float> values(8, 1);
          auto* const bytes = reinterpret_cast<std::byte*>(values.data());
          if (rank > 0) {
            const Status status = runtime.call_ordered({.kind = OperationKind::kBroadcast,
                                                        .input = bytes,
                                                        .output = bytes,
                                                        .count = 8,
                                                        .root = rank,
                                                        .process_set = 1});
            EXPECT_TRUE(status.ok()) << status.error().message;
            ++called;
          }
          while (called < 2) std::this_thread::yield();
          if (one_leaves && rank == 1) return;
          const auto begun = std::chrono::steady_clock::now();
          Status status;
          while (status.ok() &&
                 std::chrono::steady_clock::now() - begun < std::chrono::seconds(20)) {
            const auto work = runtime.submit(allreduce_of("named", values));
            status = work.ok() ? work.value()->wait() : Status(work.error());
          }
          ASSERT_FALSE(status.ok());
          EXPECT_THAT(status.error().message, testing::HasSubstr("float32 from rank 1"));
          EXPECT_THAT(status.error().message, testing::HasSubstr("float32 from rank 2"));
        },
        options);
  }
}

/// Calls whose arguments are refused on one rank alone, or on all.
struct Refusals {
  const char* name;
  std::vector<int> hosts;
  OperationKind kind;  ///< kind of the call that is refused
};
void PrintTo(const Refusals& refusals, std::ostream* stream) { *stream << refusals.name; }

class OrderedRefusals : public testing::TestWithParam<Refusals> {};
INSTANTIATE_TEST_SUITE_P(
    Worlds, OrderedRefusals,
    testing::Values(Refusals{"one_host", {0, 0}, OperationKind::kAllreduce},
                    Refusals{"two_hosts", {0, 1}, OperationKind::kAllreduce},
                    Refusals{"broadcast_on_one_host", {0, 0}, OperationKind::kBroadcast},
                    Refusals{"broadcast_on_two_hosts", {0, 1}, OperationKind::kBroadcast}),
    [](const auto& refusals) { return std::string(refusals.param.name); });

constexpr std::int64_t kRefusedCount = 8;

Status refusable(Runtime& runtime, OperationKind kind, std::vector<float>& values, bool refused) {
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  return runtime.call_ordered(
      {.kind = kind, .input = bytes, .output = refused ? nullptr : bytes, .count = kRefusedCount});
}

TEST(OrderedCalls, OneThatARankLeavesOutIsNamed) {
  run_local_world(2, [&](int rank, Runtime& runtime) {
    std::vector<float> large(200'000), small(8);
    std::vector<Result<std::shared_ptr<Work>>> calls;
    for (std::vector<float>* const values : {&large, &small}) {
      if (rank == 1 && values == &large) continue;
      auto* const bytes = reinterpret_cast<std::byte*>(values->data());
      calls.push_back(runtime.start_ordered(
          {.input = bytes, .output = bytes, .count = static_cast<std::int64_t>(values->size())},
          nullptr));
    }
    for (const auto& call : calls) {
      // Rank 1 may have found out before rank 0 starts its second call.
      const Status status = call.ok() ? (*call)->wait() : Status(call.error());
      ASSERT_FALSE(status.ok());
      EXPECT_THAT(status.error().message, testing::HasSubstr("allreduce of 200000 float32 by sum"));
      EXPECT_THAT(status.error().message, testing::HasSubstr("allreduce of 8 float32 by sum"));
    }
  });
}

TEST_P(OrderedRefusals, OfOneRankAreNoOtherCallsSum) {
  LocalWorldOptions options;
  options.hosts = GetParam().hosts;
  std::atomic<int> told = 0;
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        std::vector<float> values(kRefusedCount, 1);
        ASSERT_TRUE(refusable(runtime, OperationKind::kAllreduce, values, false).ok());
        const Status second = refusable(runtime, GetParam().kind, values, rank == 1);
        if (rank == 1) {
          ASSERT_FALSE(second.ok());
          EXPECT_EQ(second.error().code, ErrorCode::kInvalidArgument) << second.error().message;
        } else if (GetParam().kind == OperationKind::kAllreduce) {
          EXPECT_FALSE(second.ok());
        }
        // Both ranks make equal calls again, but at different positions in the order.
        // With a broadcast on two hosts, ranks learn a while later that a root has sent in vain.
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        Status third;
        while (third.ok() && std::chrono::steady_clock::now() < end)
          third = refusable(runtime, OperationKind::kAllreduce, values, false);
        ASSERT_FALSE(third.ok());
        EXPECT_THAT(third.error().message, testing::HasSubstr("failed"));
        EXPECT_THAT(third.error().message, testing::HasSubstr("in the same order"));
        ++told;
      },
      options);
  EXPECT_EQ(told, 2);
}

TEST_P(OrderedRefusals, OfARankThatLeavesAreNotWaitedFor) {
  LocalWorldOptions options;
  options.variables = {{"KOLO_OPERATION_TIMEOUT", "20"}};
  options.hosts = GetParam().hosts;
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        std::vector<float> values(kRefusedCount, 1);
        ASSERT_TRUE(refusable(runtime, OperationKind::kAllreduce, values, false).ok());
        if (rank == 1) {
          EXPECT_FALSE(refusable(runtime, GetParam().kind, values, true).ok());
          return;
        }
        // A root needs nobody for the first call.
        Status status = refusable(runtime, GetParam().kind, values, false);
        if (status.ok()) status = refusable(runtime, OperationKind::kAllreduce, values, false);
        ASSERT_FALSE(status.ok());
        // Over messages, it may fail otherwise before it hears of the refusal.
        EXPECT_NE(status.error().code, ErrorCode::kTimeout);
        EXPECT_THAT(status.error().message, testing::HasSubstr("rank 1"));
      },
      options);
}

TEST_P(OrderedRefusals, OfAllRanksChangeNothing) {
  LocalWorldOptions options;
  options.hosts = GetParam().hosts;
  run_local_world(
      2,
      [&](int, Runtime& runtime) {
        for (int round = 0; round < 100; ++round) {
          std::vector<float> values(kRefusedCount, 1);
          const Status refused = refusable(runtime, GetParam().kind, values, true);
          ASSERT_FALSE(refused.ok());
          EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << refused.error().message;
          const Status status = refusable(runtime, OperationKind::kAllreduce, values, false);
          ASSERT_TRUE(status.ok()) << status.error().message;
          ASSERT_EQ(values.front(), 2.0F);
        }
      },
      options);
}

/// A call ends in the same pass of the cycle as one that clashes, while a message is also waiting.
TEST(OrderedClashOverHosts, OfACallBesideOneThatEnds) {
  LocalWorldOptions options;
  options.hosts = {0, 1};
  for (int round = 0; round < 100; ++round) {
    run_local_world(
        2,
        [&](int rank, Runtime& runtime) {
          std::vector<std::vector<float>> values(rank == 0 ? 2 : 3, std::vector<float>(8, 1));
          std::vector<std::shared_ptr<Work>> works;
          for (std::size_t i = 0; i < values.size(); ++i) {
            auto* const bytes = reinterpret_cast<std::byte*>(values[i].data());
            const DataType type = rank == 1 && i == 1 ? DataType::kInt32 : DataType::kFloat32;
            auto work = runtime.start_ordered(
                {.input = bytes, .output = bytes, .count = 8, .type = type}, nullptr);
            // Or the other rank has found out already.
            if (work.ok()) works.push_back(*work);
          }
          for (std::size_t i = 0; i < works.size(); ++i)
            EXPECT_FALSE(works[i]->wait().ok() && i > 0);
        },
        options);
  }
}

class RefusalsOfOneRank : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, RefusalsOfOneRank,
                         testing::Values(std::vector{0, 0}, std::vector{0, 1}),
                         [](const auto& hosts) {
                           return hosts.param.back() == 0 ? "one_host" : "two_hosts";
                         });

TEST_P(RefusalsOfOneRank, MeetNoCallThatIsUnderWay) {
  LocalWorldOptions options;
  options.hosts = GetParam();
  for (const std::int64_t count : {std::int64_t{8}, std::int64_t{200'000}}) {
    run_local_world(
        2,
        [&](int rank, Runtime& runtime) {
          std::vector<std::vector<float>> values(3, std::vector<float>(200'000, 1));
          std::vector<std::shared_ptr<Work>> works;
          for (std::size_t i = 0; i < values.size(); ++i) {
            auto* const bytes = reinterpret_cast<std::byte*>(values[i].data());
            const bool refused = rank == 1 && i == 0;
            auto work = runtime.start_ordered(
                {.input = bytes, .output = refused ? nullptr : bytes, .count = count}, nullptr);
            EXPECT_FALSE(refused && work.ok());
            // Or the other rank has found out already.
            if (work.ok()) works.push_back(*work);
          }
          for (const auto& work : works) EXPECT_FALSE(work->wait().ok());
        },
        options);
  }
}

TEST_P(RefusalsOfOneRank, DoNotLetItWaitForARootThatHasGoneOn) {
  LocalWorldOptions options;
  options.hosts = GetParam();
  options.variables = {{"KOLO_OPERATION_TIMEOUT", "20"}};
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        std::vector<float> values(kRefusedCount, 1);
        const Status sent = refusable(runtime, OperationKind::kBroadcast, values, rank == 1);
        EXPECT_EQ(sent.ok(), rank == 0);
        if (rank == 1) {
          const Status status = refusable(runtime, OperationKind::kAllreduce, values, false);
          ASSERT_FALSE(status.ok());
          EXPECT_THAT(status.error().message, testing::HasSubstr("failed there at once"));
        } else {
          // By negotiated submission, where it waits for the other rank.
          auto work =
              runtime.submit({.name = "end", .signature = {.kind = OperationKind::kBarrier}});
          // Or the other rank has found out already.
          const Status status = work.ok() ? (*work)->wait() : Status(work.error());
          ASSERT_FALSE(status.ok());
          EXPECT_THAT(status.error().message, testing::HasSubstr("failed there at once"));
          EXPECT_THAT(status.error().message, testing::HasSubstr("is a null pointer"));
        }
      },
      options);
}

}  // namespace
}  // namespace kolo::test::ordered_clash_test
