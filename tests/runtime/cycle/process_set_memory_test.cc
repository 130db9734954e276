// Process sets whose slots of the window get no memory on some rank: their operations take messages
// on all ranks, and the next set tries anew. And a rank that leaves before it has said what it has.
#include "tests/support/faulty_transport.h"
#include "tests/support/process_sets.h"
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <string>
#include <vector>

namespace kolo::test {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 3;
/// More than boards and messages inside a host carry.
constexpr std::int64_t kCount = kRanks * 30'000;

/// Every operation that goes through windows, by both doors; fails the test where one is wrong.
void call_all(int rank, Runtime& runtime, std::uint32_t set) {
  const auto make = [&](OperationKind kind, float value) {
    Rows<float> rows;
    rows.input.assign(static_cast<std::size_t>(kCount), value);
    const auto name = std::string(to_string(kind));
    Submission submission = rows_of(kind, name, rows, {kCount});
    submission.process_set = set;
    submission.signature.root = 1;
    if (kind == OperationKind::kAllreduce || kind == OperationKind::kBroadcast) {
      submission.allocate = nullptr;
      submission.output = reinterpret_cast<std::byte*>(rows.input.data());
    }
    const auto work = submit(runtime, std::move(submission));
    ASSERT_DONE(work);
    const auto& output = rows.output.empty() ? rows.input : rows.output;
    const bool sums = kind == OperationKind::kAllreduce || kind == OperationKind::kReduceScatter;
    EXPECT_EQ(output.front(), sums ? 6 : kind == OperationKind::kBroadcast ? 2 : 1) << name;
    EXPECT_EQ(output.back(), sums ? 6 : kind == OperationKind::kBroadcast ? 2 : 3) << name;
  };
  for (const auto kind :
       {OperationKind::kAllreduce, OperationKind::kBroadcast, OperationKind::kAllgather,
        OperationKind::kAlltoall, OperationKind::kReduceScatter}) {
    make(kind, static_cast<float>(rank + 1));
  }
  for (const std::int64_t count : {std::int64_t{8}, kCount}) {
    std::vector<float> values(static_cast<std::size_t>(count), static_cast<float>(rank + 1));
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    const Status status =
        runtime.call_ordered({.input = data, .output = data, .count = count, .process_set = set});
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(values.back(), 6);
  }
}

TEST(ProcessSetMemory, WhereOneRankHasNoneTheSetTakesMessages) {
  std::atomic<bool> starving = false;
  std::atomic<std::size_t> most_sent = 0;  ///< bytes of a message
  LocalWorldOptions options;
  options.decorate = [&](int rank, std::unique_ptr<Transport> inner) {
    auto faulty = std::make_unique<FaultyTransport>(std::move(inner), [&](const FaultyCall& call) {
      if (call.kind == FaultyCall::Kind::kSend && call.length > most_sent) most_sent = call.length;
      return Fault::kNone;
    });
    if (rank == 1) faulty->starve(starving);
    return faulty;
  };
  std::barrier step(kRanks + 1);
  const auto round = [&](int rank, Runtime& runtime, bool with_memory) {
    if (rank == 1) starving = !with_memory;
    if (rank == 0) most_sent = 0;  // also what measured the links
    step.arrive_and_wait();
    const std::uint32_t set = added(runtime, {0, 1, 2});
    if (rank < kRanks) call_all(rank, runtime, set);
    step.arrive_and_wait();
    EXPECT_EQ(most_sent < 1024, with_memory) << most_sent;
    step.arrive_and_wait();
    ASSERT_TRUE(removed(runtime, set).ok());
  };
  testing::internal::CaptureStderr();
  run_local_world(
      kRanks + 1,
      [&](int rank, Runtime& runtime) {
        round(rank, runtime, false);
        round(rank, runtime, true);
      },
      options);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("warning: process set 1: rank 1 has no memory for its part of the "
                             "window (injected lack of"));
  EXPECT_EQ(log.find("warning"), log.rfind("warning")) << log;
}

TEST(ProcessSetMemory, WhoLeavesBeforeItHasAddedTheSetIsNamed) {
  std::atomic<bool> deaf = false;
  std::atomic<bool> are_over[2] = {};
  LocalWorldOptions options;
  options.decorate = [&](int rank, std::unique_ptr<Transport> inner) {
    auto faulty = std::make_unique<FaultyTransport>(std::move(inner), nullptr);
    if (rank == 2) faulty->deafen(deaf);
    return faulty;
  };
  run_local_world(
      kRanks + 1,
      [&](int rank, Runtime& runtime) {
        if (rank == 2) {
          deaf = true;
          ASSERT_TRUE(runtime.add_process_set({0, 1, 2}).ok());
          while (!are_over[0] || !are_over[1]) std::this_thread::yield();
          return;
        }
        const std::uint32_t set = added(runtime, {0, 1, 2});
        if (rank == kRanks) return;
        std::vector<float> values(100'000, 1);
        Submission call = allreduce_of("", values);
        call.process_set = set;
        const auto work = *runtime.submit_ordered(call);
        are_over[rank] = true;
        const Status status = work->wait();
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
        EXPECT_THAT(status.error().message, HasSubstr("rank 2 has shut down without adding"));
      },
      options);
}

}  // namespace
}  // namespace kolo::test
