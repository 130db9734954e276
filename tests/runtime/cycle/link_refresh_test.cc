// Ranks that correct what links cost while operations run by both doors: their choices change, and
// every sum stays right, as it can only be where all ranks run the same schedules.
#include "runtime/tuning/link_cache.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/local_world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::test {
namespace {

constexpr int kRanks = 3;
constexpr std::string_view kBefore = "able to use links";

/// As UCX does, it says what its links use once there are some.
class Naming final : public FaultyTransport {
 public:
  explicit Naming(
      std::unique_ptr<Transport> inner, std::function<Fault(const FaultyCall&)> faults =
                                            [](const FaultyCall&) { return Fault::kNone; })
      : FaultyTransport(std::move(inner), std::move(faults)) {}

  std::string description() const override {
    bool opened = false;
    for (int rank = 0; rank < kRanks; ++rank) opened |= activity(rank).opened;
    return std::string(opened ? "links" : kBefore);
  }
};

LocalWorldOptions on_three_hosts(const Environment::Variables& variables) {
  return {.variables = variables, .hosts = {0, 1, 2}, .decorate = [](int, auto transport) {
            return std::make_unique<Naming>(std::move(transport));
          }};
}

/// Small ones, of which the latency is learnt, and ones whose algorithm it changes, by both doors;
/// the ranks wait for nobody between them. Returns whether rank 0's choices have changed.
bool run(const Environment::Variables& variables, int rounds) {
  std::atomic<bool> changed = false;
  run_local_world(
      kRanks,
      [&](int rank, Runtime& runtime) {
        const double at_start = runtime.info().across.latency_us;
        std::vector<float> small(1);
        std::vector<float> large(3000);
        std::vector<float> named(5000);
        for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
          small.assign(small.size(), static_cast<float>(rank));
          large.assign(large.size(), static_cast<float>(rank + round % 7));
          named.assign(named.size(), static_cast<float>(rank * 2));
          const auto begin = [](std::vector<float>& data) {
            return reinterpret_cast<std::byte*>(data.data());
          };
          ASSERT_TRUE(runtime
                          .allreduce_ordered(begin(small), begin(small), 1, DataType::kFloat32,
                                             ReduceOp::kSum)
                          .ok());
          const auto work = submit(runtime, allreduce_of("named", named));
          ASSERT_TRUE(runtime
                          .allreduce_ordered(begin(large), begin(large), 3000, DataType::kFloat32,
                                             ReduceOp::kSum)
                          .ok());
          ASSERT_TRUE(work->wait().ok());
          ASSERT_EQ(small[0], 3);
          ASSERT_EQ(large[2999], 3 + 3 * (round % 7)) << round;
          ASSERT_EQ(named[4999], 6) << round;
          // Different speeds: rank 0's times alone must count.
          if (rank == 2 && round % 5 == 0) std::this_thread::yield();
        }
        if (rank == 0) changed = runtime.info().across.latency_us != at_start;
      },
      on_three_hosts(variables));
  return changed;
}

/// A folder in which a job finds costs that are far from the truth.
class WrongCosts {
 public:
  WrongCosts() {
    run_local_world(
        kRanks,
        [&](int rank, Runtime& runtime) {
          if (rank != 0) return;
          cache_.emplace(folder_, topology_of(runtime.world(), kBefore));
          ASSERT_TRUE(cache_->store({.across = kWrong}).ok());
        },
        on_three_hosts(variables("0")));
  }
  WrongCosts(const WrongCosts&) = delete;
  WrongCosts& operator=(const WrongCosts&) = delete;
  ~WrongCosts() { std::filesystem::remove_all(folder_); }

  Environment::Variables variables(const std::string& refreshes) const {
    return {{"KOLO_CACHE_DIR", folder_}, {"KOLO_LINK_REFRESH", refreshes}};
  }
  double stored_latency() const { return (*cache_->load())->across.latency_us; }

  static constexpr LinkCost kWrong{
      .latency_us = 1e5, .us_per_byte = 1e-3, .reduce_us_per_byte = 1e-4, .crowd_us = 1e4};

 private:
  const std::string folder_ = testing::TempDir() + "kolo_wrong_costs_" + std::to_string(::getpid());
  std::optional<LinkCache> cache_;
};

TEST(LinkRefreshRuntime, CorrectedCostsCountOnAllRanksAlikeAndAreKept) {
  const WrongCosts costs;
  EXPECT_TRUE(run(costs.variables("1"), 1500));
  EXPECT_LT(costs.stored_latency(), WrongCosts::kWrong.latency_us / 2);
}

TEST(LinkRefreshRuntime, ADeterministicJobKeepsWhatItStartedWith) {
  const WrongCosts costs;
  EXPECT_FALSE(run(costs.variables("0"), 300));
  auto variables = costs.variables("1");
  variables["KOLO_DETERMINISTIC"] = "1";
  EXPECT_FALSE(run(variables, 300));
  EXPECT_EQ(costs.stored_latency(), WrongCosts::kWrong.latency_us);
}

/// Rank 0's proposals do not come to rank 2 while `are_lost`.
LocalWorldOptions losing_proposals(const Environment::Variables& variables,
                                   const std::atomic<bool>& are_lost) {
  LocalWorldOptions options = on_three_hosts(variables);
  options.decorate = [&are_lost](int rank, std::unique_ptr<Transport> transport) {
    return std::make_unique<Naming>(std::move(transport), [&, rank](const FaultyCall& call) {
      const bool is_proposal = rank == 0 && call.peer == 2 && call.length > 60 &&
                               call.kind == FaultyCall::Kind::kMessage;
      return are_lost && is_proposal ? Fault::kDrop : Fault::kNone;
    });
  };
  return options;
}

/// `count` of one element each; of the first that fails.
Status broadcast(Runtime& runtime, int root, int count) {
  float value = 1;
  auto* const begin = reinterpret_cast<std::byte*>(&value);
  Status status;
  for (int i = 0; i < count && status.ok(); ++i)
    status = runtime.call_ordered({.kind = OperationKind::kBroadcast,
                                   .input = begin,
                                   .output = begin,
                                   .count = 1,
                                   .root = root});
  return status;
}

/// By which rank 0 comes to propose other costs: at the named door, where it decides, it is not
/// late.
void sum_some(Runtime& runtime) {
  std::vector<float> value(1, 1);
  for (int i = 0; i < 64; ++i)
    ASSERT_TRUE(submit(runtime, allreduce_of("some", value))->wait().ok());
}

TEST(LinkRefreshRuntime, WhatOthersHaveBegunBeforeTellsNothing) {
  const WrongCosts costs;
  std::atomic<bool> changed = false;
  run_local_world(
      kRanks,
      [&](int rank, Runtime& runtime) {
        const double at_start = runtime.info().across.latency_us;
        float value = 1;
        auto* const begin = reinterpret_cast<std::byte*>(&value);
        const OrderedArguments call{.input = begin, .output = begin, .count = 1};
        for (int i = 0; i < 200; ++i) {
          std::shared_ptr<Work> work;
          if (rank != 0) work = *runtime.start_ordered(call, nullptr);
          // Its messages overtake none of that.
          ASSERT_TRUE(
              submit(runtime, {.signature = {.kind = OperationKind::kBarrier}})->wait().ok());
          if (rank == 0) work = *runtime.start_ordered(call, nullptr);
          ASSERT_TRUE(work->wait().ok());
        }
        if (rank == 0) changed = runtime.info().across.latency_us != at_start;
      },
      on_three_hosts(costs.variables("1")));
  EXPECT_FALSE(changed);
}

TEST(LinkRefreshRuntime, AProposalThatNobodyAnswersEndsByTheDeadline) {
  const WrongCosts costs;
  Environment::Variables variables = costs.variables("1");
  variables["KOLO_OPERATION_TIMEOUT"] = "2";
  const std::atomic<bool> are_lost = true;
  std::latch over(1);
  run_local_world(
      kRanks,
      [&](int rank, Runtime& runtime) {
        sum_some(runtime);
        // Rank 2 needs nobody for its part, and answers nothing; rank 1 goes no further.
        const Status status = broadcast(runtime, 2, rank == 1 ? 1000 : 3000);
        if (rank != 0) return over.wait();
        over.count_down();
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find("could not begin within 2 s"), std::string::npos)
            << status.error().message;
      },
      losing_proposals(variables, are_lost));
}

TEST(LinkRefreshRuntime, WhoLeavesHasAnsweredAProposal) {
  const WrongCosts costs;
  Environment::Variables variables = costs.variables("1");
  variables["KOLO_OPERATION_TIMEOUT"] = "20";
  const std::atomic<bool> are_lost = true;
  run_local_world(
      kRanks,
      [&](int, Runtime& runtime) {
        sum_some(runtime);
        const Status status = broadcast(runtime, 2, 3000);
        EXPECT_TRUE(status.ok()) << status.error().message;
      },
      losing_proposals(variables, are_lost));
}

// Rank 0 is ahead of the others by the ordered door when it proposes, for the other door needs
// them, and it does what it may do meanwhile.
TEST(LinkRefreshRuntime, WhatRankZeroHasProposedEndsWhereItLeaves) {
  const WrongCosts costs;
  Environment::Variables variables = costs.variables("1");
  variables["KOLO_OPERATION_TIMEOUT"] = "20";
  std::atomic<bool> are_lost = false;
  run_local_world(
      kRanks,
      [&](int rank, Runtime& runtime) {
        if (rank == 0) {
          ASSERT_TRUE(broadcast(runtime, 0, 500).ok());
        }
        std::vector<float> value(1);
        for (int i = 0; i < 200; ++i) {
          ASSERT_TRUE(submit(runtime, allreduce_of("named", value))->wait().ok());
          if (rank == 0) are_lost = true;  // the answer to the first was as long as a proposal
        }
        const Status status = broadcast(runtime, 0, rank == 0 ? 900 : 1400);
        EXPECT_TRUE(status.ok()) << status.error().message;
      },
      losing_proposals(variables, are_lost));
}

}  // namespace
}  // namespace kolo::test
