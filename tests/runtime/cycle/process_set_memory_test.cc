// Process sets on one host and over two, whose window slots get no memory on some rank: their
// operations then use messages on all ranks, and the next set tries again. Also a rank that leaves
// before it has announced its memory.
#include "tests/support/faulty_transport.h"
#include "tests/support/process_sets.h"
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kolo::test::process_set_memory_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr int kRanks = 3;
/// More than control segments and messages inside a host carry.
constexpr std::int64_t kCount = kRanks * 30'000;

/// Host by rank of the world.
using Layout = std::vector<int>;
const Layout kOneHost = {0, 0, 0, 0};
const Layout kTwoHosts = {0, 0, 1, 1};

/// Runs every operation of these kinds that uses windows, and all-reduces in both submission modes;
/// fails the test on a wrong result.
void call_all(int rank, Runtime& runtime, std::uint32_t set,
              const std::vector<OperationKind>& kinds) {
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
    if (kind == OperationKind::kGather && rank != 1) return;
    const bool sums = kind == OperationKind::kAllreduce || kind == OperationKind::kReduceScatter;
    const bool is_of_root = kind == OperationKind::kBroadcast || kind == OperationKind::kScatter;
    EXPECT_EQ(output.front(), sums ? 6 : is_of_root ? 2 : 1) << name;
    EXPECT_EQ(output.back(), sums ? 6 : is_of_root ? 2 : 3) << name;
  };
  for (const auto kind : kinds) make(kind, static_cast<float>(rank + 1));
  for (const std::int64_t count : {std::int64_t{8}, kCount}) {
    std::vector<float> values(static_cast<std::size_t>(count), static_cast<float>(rank + 1));
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    const Status status =
        runtime.call_ordered({.input = data, .output = data, .count = count, .process_set = set});
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(values.back(), 6);
  }
}

class ProcessSetMemory : public testing::TestWithParam<Layout> {
 protected:
  const Layout& hosts() const { return GetParam(); }
  bool is_over_hosts() const { return hosts() != kOneHost; }
  /// The kinds whose bytes windows carry inside a host, at this size.
  std::vector<OperationKind> kinds() const {
    std::vector kinds = {OperationKind::kAllreduce, OperationKind::kAllgather,
                         OperationKind::kReduceScatter};
    if (!is_over_hosts())
      kinds.insert(kinds.end(), {OperationKind::kBroadcast, OperationKind::kAlltoall,
                                 OperationKind::kGather, OperationKind::kScatter});
    return kinds;
  }
};
INSTANTIATE_TEST_SUITE_P(Hosts, ProcessSetMemory, testing::Values(kOneHost, kTwoHosts));

TEST_P(ProcessSetMemory, WhereOneRankHasNoneTheSetTakesMessages) {
  std::atomic<bool> starving = false;
  std::atomic<std::size_t> most_sent = 0;  ///< bytes of a message inside a host
  LocalWorldOptions options;
  options.hosts = hosts();
  if (is_over_hosts()) options.variables = {{"KOLO_ALGORITHM", "hierarchical"}};
  options.decorate = [&](int rank, std::unique_ptr<Transport> inner) {
    const auto look = [&, rank](const FaultyCall& call) {
      const auto host_of = [&](int of) { return hosts()[static_cast<std::size_t>(of)]; };
      if (call.kind == FaultyCall::Kind::kSend && host_of(call.peer) == host_of(rank) &&
          call.length > most_sent)
        most_sent = call.length;
      return Fault::kNone;
    };
    auto faulty = std::make_unique<FaultyTransport>(std::move(inner), look);
    if (rank == 1) faulty->starve(starving);
    return faulty;
  };
  std::barrier step(kRanks + 1);
  const auto round = [&](int rank, Runtime& runtime, bool with_memory) {
    if (rank == 1) starving = !with_memory;
    if (rank == 0) most_sent = 0;  // discards what the link measurement has sent
    step.arrive_and_wait();
    const std::uint32_t set = added(runtime, {0, 1, 2});
    if (rank < kRanks) call_all(rank, runtime, set, kinds());
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

// A rank's messages in a set, which wait for nobody, must not affect the set's later sums.
TEST_P(ProcessSetMemory, MessagesBeforeAllHaveAddedTheSetChangeNothing) {
  const std::vector<int> members = {1, 2, 3};
  std::atomic<bool> deaf = false;
  std::barrier step(kRanks + 1);
  LocalWorldOptions options;
  options.hosts = hosts();
  if (is_over_hosts()) options.variables = {{"KOLO_ALGORITHM", "hierarchical"}};
  options.decorate = [&](int rank, std::unique_ptr<Transport> inner) {
    auto faulty = std::make_unique<FaultyTransport>(std::move(inner), nullptr);
    if (rank == 3) faulty->deafen(deaf);
    return faulty;
  };
  run_local_world(
      kRanks + 1,
      [&](int rank, Runtime& runtime) {
        if (rank == 3) deaf = true;
        step.arrive_and_wait();
        const auto adding = *runtime.add_process_set(members);
        if (rank != 3) {
          ASSERT_DONE(adding);
        }
        if (rank == 1 || rank == 2) {
          std::vector<float> values(1000, static_cast<float>(rank));
          Submission message = allreduce_of("", values);
          message.signature.kind = rank == 1 ? OperationKind::kSend : OperationKind::kReceive;
          message.signature.root = 3 - rank;  // the other rank
          message.process_set = 1;
          const auto work = *runtime.submit_message(std::move(message));
          ASSERT_DONE(work);
          EXPECT_EQ(values.back(), 1);
        }
        step.arrive_and_wait();
        if (rank == 3) {
          deaf = false;
          ASSERT_DONE(adding);
        }
        if (rank > 0) {
          std::vector<float> values(static_cast<std::size_t>(kCount), static_cast<float>(rank));
          Submission sum = allreduce_of("sum", values);
          sum.process_set = 1;
          const auto work = submit(runtime, std::move(sum));
          ASSERT_DONE(work);
          EXPECT_EQ(values.back(), 6);
        }
      },
      options);
}

/// In a world of four ranks, `leaver` does not add the set; the calls of the others fail and name
/// it.
void check_leaver(const Layout& hosts, const std::vector<int>& set_ranks, int leaver,
                  const std::vector<int>& callers,
                  const std::string& reason = "has shut down before all ranks had added the set") {
  SCOPED_TRACE(leaver);
  std::atomic<bool> deaf = false;
  std::atomic<std::size_t> calls = 0;
  std::barrier ended(kRanks);
  LocalWorldOptions options;
  options.hosts = hosts;
  options.variables["KOLO_CONTROL_DEGREE"] = "16";  // whoever is deaf passes nothing on
  options.decorate = [&](int rank, std::unique_ptr<Transport> inner) {
    auto faulty = std::make_unique<FaultyTransport>(std::move(inner), nullptr);
    if (rank == leaver) faulty->deafen(deaf);
    return faulty;
  };
  const auto has = [](const std::vector<int>& ranks, int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  run_local_world(
      kRanks + 1,
      [&](int rank, Runtime& runtime) {
        if (rank == leaver) {
          deaf = true;
          ASSERT_TRUE(runtime.add_process_set(set_ranks).ok());
          while (calls < callers.size()) std::this_thread::yield();
          return;
        }
        const std::uint32_t set = added(runtime, set_ranks);
        if (has(callers, rank)) {
          std::vector<float> values(100'000, 1);
          Submission call = allreduce_of("", values);
          call.process_set = set;
          const auto work = *runtime.submit_ordered(call);
          ++calls;
          const Status status = work->wait();
          EXPECT_FALSE(status.ok());
          if (!status.ok()) {
            EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
            EXPECT_THAT(status.error().message,
                        ContainsRegex("rank " + std::to_string(leaver) + ' ' + reason));
          }
        }
        ended.arrive_and_wait();
      },
      options);
}

TEST_P(ProcessSetMemory, WhoLeavesBeforeItHasAddedTheSetIsNamed) {
  check_leaver(hosts(), {0, 1, 2}, 2, {0, 1});
}

// The set's first rank, which collects what memory the others have, makes no calls.
TEST_P(ProcessSetMemory, WhoLeavesIsNamedToThoseWhoCall) {
  check_leaver(hosts(), {1, 2, 3}, 3, {2});
}

TEST_P(ProcessSetMemory, TheFirstRankOfASetIsNamedWhereItLeaves) {
  check_leaver(hosts(), {1, 2, 3}, 1, {2, 3});
}

// Each rank has its own host, so the ranks exchange no information about a set.
TEST(ProcessSetWithoutMemory, WhoLeavesBeforeItHasAddedTheSetIsNamed) {
  const Layout hosts = {0, 1, 2, 3};
  // The error is that of a rank that waits for the leaver, or that of one that sends to it.
  const std::string reason = "has (shut down and takes no part any more|left)";
  check_leaver(hosts, {0, 1, 2}, 2, {0, 1}, reason);
  check_leaver(hosts, {1, 2, 3}, 1, {2, 3}, reason);
}

}  // namespace
}  // namespace kolo::test::process_set_memory_test
