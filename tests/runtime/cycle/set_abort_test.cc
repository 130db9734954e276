// A process set that one of its ranks aborts: its calls fail on its ranks, whatever they wait for,
// and other sets go on. Also sets that their own ranks alone add.
#include "tests/support/local_world.h"
#include "tests/support/process_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kolo::test::set_abort_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Submission on(std::uint32_t set, Submission submission) {
  submission.process_set = set;
  return submission;
}

/// The error of the call, refused or failed; empty if it succeeded.
std::string failure_of(const Result<std::shared_ptr<Work>>& work) {
  const Status status = work.ok() ? (*work)->wait() : Status(work.error());
  return status.ok() ? std::string() : status.error().message;
}

/// Sums ones over the set, by name and in order.
void expect_sums(Runtime& runtime, std::uint32_t set, float sum, std::size_t count) {
  std::vector<float> values(count, 1.0F);
  EXPECT_EQ(failure_of(runtime.submit(on(set, allreduce_of("goes on", values)))), "");
  EXPECT_EQ(values.back(), sum);
  values.assign(count, 1.0F);
  EXPECT_EQ(failure_of(runtime.submit_ordered(on(set, allreduce_of("", values)))), "");
  EXPECT_EQ(values.back(), sum);
}

struct Case {
  std::vector<int> hosts;
  std::size_t count;
};

class SetAbort : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(HostsAndSizes, SetAbort,
                         testing::Values(Case{{0, 0, 0}, 10}, Case{{0, 0, 0}, 300'000},
                                         Case{{0, 1, 2}, 10}, Case{{0, 1, 2}, 300'000}));

TEST_P(SetAbort, EndsItsCallsAndNoOthers) {
  std::barrier meet(3);
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        const std::size_t count = GetParam().count;
        const std::uint32_t set = added(runtime, {0, 1});
        const std::uint32_t other = added(runtime, {1, 2});
        constexpr const char* kWhy = "rank 0 has aborted process set 1: the test wants it";
        std::vector<std::vector<float>> values(3, std::vector<float>(count, 1.0F));
        std::vector<Result<std::shared_ptr<Work>>> works;
        if (rank == 1) {  // rank 0 makes none of these
          works.push_back(runtime.submit(on(set, allreduce_of("waits", values[0]))));
          works.push_back(runtime.submit_ordered(on(set, allreduce_of("", values[1]))));
          Submission message = on(set, allreduce_of("", values[2]));
          message.signature.kind = OperationKind::kReceive;
          message.signature.root = 0;
          works.push_back(runtime.submit_message(std::move(message)));
        }
        // The others of the set hear of it between their own calls.
        for (int i = 0; i < 3; ++i) expect_sums(runtime, 0, 3, count);
        if (rank == 0) runtime.abort_process_set(set, "the test wants it");
        for (const auto& work : works) EXPECT_THAT(failure_of(work), HasSubstr(kWhy));
        if (rank != 2) {
          std::vector<float> late(count, 1.0F);
          EXPECT_THAT(failure_of(runtime.submit(on(set, allreduce_of("late", late)))),
                      HasSubstr(kWhy));
          EXPECT_THAT(failure_of(runtime.submit_ordered(on(set, allreduce_of("", late)))),
                      HasSubstr(kWhy));
        }
        for (int i = 0; i < 10; ++i) {
          expect_sums(runtime, 0, 3, count);
          if (rank != 0) expect_sums(runtime, other, 2, count);
        }
        EXPECT_THAT(removed(runtime, set).error().message, HasSubstr("process set 1 was aborted"));
        meet.arrive_and_wait();  // the memory stays as long as peers may touch it
        static_cast<void>(runtime.shut_down());
        EXPECT_FALSE(runtime.failed());
        meet.arrive_and_wait();
      },
      {.hosts = GetParam().hosts});
}

// Some of the ranks are within the call, in any state, when it is aborted.
TEST_P(SetAbort, MeetsCallsUnderWay) {
  std::barrier meet(3);
  for (const int delay : {0, 16, 32}) {
    run_local_world(
        3,
        [&](int rank, Runtime& runtime) {
          const std::size_t count = GetParam().count;
          const auto added_set = runtime.add_process_set({0, 1, 2}, /*by_its_ranks=*/true);
          ASSERT_EQ(failure_of(added_set), "");
          constexpr std::uint32_t set = 1;
          std::vector<std::vector<float>> values(20, std::vector<float>(count, 1.0F));
          std::vector<Result<std::shared_ptr<Work>>> works;
          for (std::size_t i = 0; i < values.size(); ++i) {
            Submission sum = on(set, allreduce_of(i % 2 == 0 ? std::to_string(i) : "", values[i]));
            works.push_back(i % 2 == 0 ? runtime.submit(std::move(sum))
                                       : runtime.submit_ordered(std::move(sum)));
          }
          if (rank == 1) {
            for (int i = 0; i < delay; ++i) std::this_thread::yield();
            runtime.abort_process_set(set, "the test wants it");
          }
          for (std::size_t i = 0; i < values.size(); ++i) {
            const std::string failure = failure_of(works[i]);
            if (failure.empty()) {
              EXPECT_EQ(values[i].back(), 3.0F);
            } else {
              EXPECT_THAT(failure, HasSubstr("rank 1 has aborted process set 1"));
            }
          }
          expect_sums(runtime, 0, 3, count);
          meet.arrive_and_wait();
          static_cast<void>(runtime.shut_down());
          meet.arrive_and_wait();
        },
        {.hosts = GetParam().hosts});
  }
}

TEST(AbortOfAllRanks, LeavesOtherSets) {
  std::barrier meet(3);
  run_local_world(3, [&](int rank, Runtime& runtime) {
    const std::uint32_t set = added(runtime, {0, 1});
    meet.arrive_and_wait();  // an abort may overtake the end of what was called before
    std::vector<float> values(10, 1.0F);
    if (rank == 0) {
      const auto waits = runtime.submit(allreduce_of("waits", values));
      EXPECT_THAT(failure_of(waits), HasSubstr("rank 2 has aborted process set 0"));
    }
    if (rank == 2) runtime.abort_process_set(0, "the test wants it");
    if (rank < 2) expect_sums(runtime, set, 2, 1000);
    EXPECT_EQ(runtime.failed(), false);
  });
}

TEST(SetsByTheirRanks, AreAddedWithoutTheOthers) {
  std::barrier meet(4);
  run_local_world(4, [&](int rank, Runtime& runtime) {
    for (std::uint32_t set = 1; set <= 2; ++set) {  // twice: there may be several
      if (rank % 2 == 1) {
        const auto work = runtime.add_process_set({3, 1}, /*by_its_ranks=*/true);
        EXPECT_EQ(failure_of(work), "");
        EXPECT_EQ((*work)->outcome().value, set);
        expect_sums(runtime, set, 2, 1000);
      }
    }
    meet.arrive_and_wait();
    // Numbers and names go on alike on all ranks.
    EXPECT_EQ(added(runtime, {0, 3}), 3U);
    EXPECT_EQ(*runtime.ranks_of(2), (std::vector<int>{1, 3}));
    expect_sums(runtime, 0, 4, 10);
    EXPECT_EQ(failure_of(*runtime.remove_process_set(1)), "");
  });
}

TEST(SetsByTheirRanks, AreRemovedWithoutTheOthers) {
  std::barrier meet(4);
  run_local_world(4, [&](int rank, Runtime& runtime) {
    for (int i = 0; i < 20; ++i) {  // more than there are partitions
      if (rank % 2 == 0) continue;
      const auto added_set = runtime.add_process_set({3, 1}, /*by_its_ranks=*/true);
      ASSERT_EQ(failure_of(added_set), "");
      const auto set = static_cast<std::uint32_t>((*added_set)->outcome().value);
      expect_sums(runtime, set, 2, 1000);
      const auto removal = runtime.remove_process_set(set, /*by_its_ranks=*/true);
      ASSERT_EQ(failure_of(removal), "");
      EXPECT_THAT(failure_of(runtime.remove_process_set(set, /*by_its_ranks=*/true)),
                  HasSubstr("there is no process set"));
    }
    meet.arrive_and_wait();
    expect_sums(runtime, 0, 4, 10);
    EXPECT_THAT(runtime.process_sets(), testing::ElementsAre(0U));
  });
}

TEST(SetsByTheirRanks, DoNotNeedAnotherRankThatHasShutDown) {
  std::barrier meet(4);
  run_local_world(4, [&](int rank, Runtime& runtime) {
    const auto old =
        rank < 2 ? runtime.add_process_set({0, 1}, true) : runtime.add_process_set({2, 3}, true);
    ASSERT_EQ(failure_of(old), "");
    const auto old_set = static_cast<std::uint32_t>((*old)->outcome().value);
    meet.arrive_and_wait();
    if (rank == 3) {
      runtime.shut_down();
      meet.arrive_and_wait();
      return;
    }
    meet.arrive_and_wait();
    if (rank == 2) {  // the set stays, and nothing else happens
      EXPECT_THAT(failure_of(runtime.remove_process_set(old_set, /*by_its_ranks=*/true)),
                  HasSubstr("rank 3 has shut down and will never submit it"));
    }
    const auto added_set = runtime.add_process_set({2, 1, 0}, /*by_its_ranks=*/true);
    ASSERT_EQ(failure_of(added_set), "");
    const auto set = static_cast<std::uint32_t>((*added_set)->outcome().value);
    expect_sums(runtime, set, 3, 1000);
    if (rank < 2) expect_sums(runtime, old_set, 2, 10);
    EXPECT_FALSE(runtime.failed());
  });
}

// All other ranks are below rank 1, and hear from rank 0 through it until it leaves.
TEST(SetsByTheirRanks, DoNotNeedARankThroughWhichTheirMessagesWent) {
  for (int round = 0; round < 10; ++round) {
    std::barrier meet(5), done(4);
    run_local_world(
        5,
        [&](int rank, Runtime& runtime) {
          expect_sums(runtime, 0, 5, 10);
          meet.arrive_and_wait();
          if (rank == 1) {
            runtime.shut_down();
            return;
          }
          const std::vector<int> ranks = rank % 2 == 0 ? std::vector{0, 2, 4} : std::vector{3};
          for (int i = 0; i < 5; ++i) {
            const auto set = runtime.add_process_set(ranks, /*by_its_ranks=*/true);
            ASSERT_EQ(failure_of(set), "");
            const auto id = static_cast<std::uint32_t>((*set)->outcome().value);
            expect_sums(runtime, id, static_cast<float>(ranks.size()), 10);
            ASSERT_EQ(failure_of(runtime.remove_process_set(id, true)), "");
          }
          done.arrive_and_wait();  // rank 0 decides for the others
          EXPECT_FALSE(runtime.failed());
        },
        {.variables = {{"KOLO_CONTROL_DEGREE", "1"}}});
  }
}

TEST(SetsByTheirRanks, NameTheRankThatDoesNotCome) {
  std::barrier meet(3);
  run_local_world(3,
                  [&](int rank, Runtime& runtime) {
                    if (rank == 0) {
                      EXPECT_THAT(
                          failure_of(runtime.add_process_set({0, 1}, /*by_its_ranks=*/true)),
                          AllOf(HasSubstr("submitted by rank 0, missing on rank 1 after")));
                    }
                    meet.arrive_and_wait();
                    expect_sums(runtime, 0, 3, 10);
                  },
                  {.variables = {{"KOLO_OPERATION_TIMEOUT", "1"}}});
}

}  // namespace
}  // namespace kolo::test::set_abort_test
