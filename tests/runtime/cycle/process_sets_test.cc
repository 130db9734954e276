// Process sets over in-process ranks: from the start and at run time, at once and in any order;
// also refusals.
#include "tests/support/process_sets.h"
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <numeric>
#include <random>
#include <thread>

namespace kolo::test::process_sets_test {
namespace {

using testing::HasSubstr;

LocalWorldOptions with_sets(std::vector<std::vector<int>> sets) {
  LocalWorldOptions options;
  options.process_sets = std::move(sets);
  return options;
}

Submission on(std::uint32_t set, Submission submission) {
  submission.process_set = set;
  return submission;
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

float sum_of(const std::vector<int>& ranks) {
  float sum = 0;
  for (const int rank : ranks) sum += static_cast<float>(rank + 1);
  return sum;
}

TEST(ProcessSets, RunAtOnceUnderTheSameNamesInAnyOrder) {
  const std::vector<std::vector<int>> sets{{0, 1, 2, 3, 4}, {0, 2, 4}, {1, 2, 3}};
  run_local_world(
      5,
      [&](int rank, Runtime& runtime) {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (int step = 0; step < 20; ++step) {
          struct Item {
            std::uint32_t set;
            int tensor;
            std::vector<float> values;
            std::shared_ptr<Work> work;
          };
          std::vector<Item> items;
          for (std::uint32_t set = 0; set < sets.size(); ++set) {
            for (int tensor = 0; tensor < 9; ++tensor) {
              if (contains(sets[set], rank)) items.push_back({set, tensor, {}, {}});
            }
          }
          std::shuffle(items.begin(), items.end(), random);
          for (Item& item : items) {
            // A name has another length in each set.
            item.values.assign(static_cast<std::size_t>(item.tensor) * 31 + item.set + 1,
                               static_cast<float>((rank + 1) * (item.tensor + 1)));
            item.work =
                submit(runtime,
                       on(item.set, allreduce_of("t" + std::to_string(item.tensor), item.values)));
          }
          for (Item& item : items) {
            ASSERT_DONE(item.work);
            EXPECT_EQ(item.work->contributors(), static_cast<int>(sets[item.set].size()));
            for (const float value : item.values) {
              ASSERT_EQ(value, sum_of(sets[item.set]) * static_cast<float>(item.tensor + 1));
            }
          }
        }
        if (contains(sets[1], rank)) {
          EXPECT_EQ(runtime.negotiation_counters(1).requests, 9U);
        }
      },
      with_sets({sets[1], sets[2]}));
}

TEST(ProcessSets, RootsAndRowsAreThoseOfTheSet) {
  const std::vector<int> set{1, 3};
  run_local_world(
      4,
      [&](int rank, Runtime& runtime) {
        if (!contains(set, rank)) return;
        for (const int root : set) {
          std::vector<float> values(100, static_cast<float>(rank));
          Submission submission = on(1, allreduce_of("b", values));
          submission.signature.kind = OperationKind::kBroadcast;
          submission.signature.root = root;
          ASSERT_DONE(submit(runtime, submission));
          EXPECT_EQ(values.back(), static_cast<float>(root));

          Rows<float> rows{std::vector<float>(static_cast<std::size_t>(rank), 1.0F), {}, {}};
          auto gather = on(1, rows_of(OperationKind::kGather, "g", rows, {rank}));
          gather.signature.root = root;
          ASSERT_DONE(submit(runtime, gather));
          EXPECT_EQ(rows.output.size(), rank == root ? 4U : 0U);
        }
        std::vector<float> mean(3, static_cast<float>(rank));
        ASSERT_DONE(submit(runtime, on(1, allreduce_of("mean", mean, ReduceOp::kAverage))));
        EXPECT_EQ(mean.front(), 2.0F);
      },
      with_sets({set}));
}

TEST(ProcessSets, ComeAndGoWhileOthersWork) {
  run_local_world(4, [](int rank, Runtime& runtime) {
    for (std::uint32_t round = 0; round < 5; ++round) {
      const std::uint32_t set = added(runtime, {3, 1, 0});
      EXPECT_EQ(set, round + 1) << "numbers are never used again";
      EXPECT_EQ(*runtime.ranks_of(set), (std::vector<int>{0, 1, 3}));
      if (rank != 2) {
        // Call at once: the others may not have added the set yet.
        std::vector<float> values(1000, 1.0F);
        ASSERT_DONE(submit(runtime, on(set, allreduce_of("t", values))));
        EXPECT_EQ(values.back(), 3.0F);
      }
      const auto removed = runtime.remove_process_set(set);
      ASSERT_TRUE(removed.ok());
      ASSERT_DONE(*removed);
      EXPECT_FALSE(runtime.ranks_of(set).ok());
      EXPECT_EQ(runtime.process_sets(), std::vector<std::uint32_t>{0});
    }
  });
}

// The world is looked up without a lock, while its list grows and shrinks.
TEST(ProcessSets, ComeAndGoWhileOrderedCallsAreMade) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    const std::jthread caller([&] {
      for (int call = 0; call < 600; ++call) {
        const auto own = static_cast<float>(rank + 1);
        float sum = 0;
        const Status status = runtime.allreduce_ordered(reinterpret_cast<const std::byte*>(&own),
                                                        reinterpret_cast<std::byte*>(&sum), 1,
                                                        DataType::kFloat32, ReduceOp::kSum);
        ASSERT_TRUE(status.ok()) << status.error().message;
        ASSERT_EQ(sum, 3.0F);
      }
    });
    for (int round = 0; round < 20; ++round) {
      const std::vector<std::uint32_t> sets{added(runtime, {0}), added(runtime, {1})};
      for (const std::uint32_t set : sets) ASSERT_DONE(*runtime.remove_process_set(set));
    }
  });
}

TEST(ProcessSets, MayBeAddedInAnyOrder) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    auto first = runtime.add_process_set(rank == 0 ? std::vector{0} : std::vector{1});
    auto second = runtime.add_process_set(rank == 0 ? std::vector{1} : std::vector{0});
    ASSERT_DONE(*first);
    ASSERT_DONE(*second);
    const auto of_zero =
        static_cast<std::uint32_t>((rank == 0 ? *first : *second)->outcome().value);
    EXPECT_EQ(*runtime.ranks_of(of_zero), std::vector{0});
  });
}

// A rank has all it needs for the call before the others have what they need to begin it.
TEST(ProcessSets, RanksLeaveAfterTheFirstSmallCall) {
  for (int round = 0; round < 100 && !testing::Test::HasFailure(); ++round) {
    run_local_world(3, [](int rank, Runtime& runtime) {
      const std::uint32_t set = added(runtime, {0, 1});
      if (rank == 2) return;
      float value = 1;
      const Status status =
          runtime.call_ordered({.input = reinterpret_cast<const std::byte*>(&value),
                                .output = reinterpret_cast<std::byte*>(&value),
                                .count = 1,
                                .process_set = set});
      ASSERT_TRUE(status.ok()) << status.error().message;
      ASSERT_EQ(value, 2.0F);
    });
  }
}

// The set's ranks travel as a shape, whose element count would overflow.
TEST(ProcessSets, MayHaveMoreRanksThanAShapeHasExtents) {
  std::vector<int> ranks(20);
  std::iota(ranks.begin(), ranks.end(), 1);
  run_local_world(21, [&](int, Runtime& runtime) { EXPECT_EQ(added(runtime, ranks), 1U); });
}

TEST(ProcessSets, RefuseWhatCannotBe) {
  std::barrier meet(3);
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        const auto refusal = [&](std::vector<int> ranks) {
          return (*runtime.add_process_set(std::move(ranks)))->wait().error().message;
        };
        EXPECT_THAT(refusal({0, 3}), HasSubstr("ranks [0, 3] are not all ranks; those are 0 to 2"));
        EXPECT_THAT(refusal({1, 0, 1}), HasSubstr("ranks [0, 1, 1] name a rank twice"));
        EXPECT_THAT(refusal({}), HasSubstr("a process set needs a rank"));
        EXPECT_THAT(refusal({1, 0}),
                    HasSubstr("a process set of ranks 0, 1 already: number 1; use that one"));
        EXPECT_THAT((*runtime.remove_process_set(0))->wait().error().message,
                    HasSubstr("process set 0 is the world, which cannot be removed"));
        EXPECT_THAT(runtime.remove_process_set(7).error().message,
                    HasSubstr("there is no process set 7; it was never added, or was removed"));

        std::vector<float> values(4, 1.0F);
        if (rank == 2) {
          const auto refused = runtime.submit(on(1, allreduce_of("t", values)));
          ASSERT_FALSE(refused.ok());
          EXPECT_EQ(refused.error().message,
                    "allreduce 't': rank 2 is not in process set 1; its ranks are 0, 1");
        }
        // Only rank 0 has an operation in flight: no rank removes the set.
        std::shared_ptr<Work> pending;
        if (rank == 0) pending = submit(runtime, on(1, allreduce_of("t", values)));
        EXPECT_EQ(
            (*runtime.remove_process_set(1))->wait().error().message,
            "tensor 'kolo/remove_process_set 1': rank 0: 1 operations are in flight on process "
            "set 1; wait for them first");
        meet.arrive_and_wait();
        if (rank == 1) pending = submit(runtime, on(1, allreduce_of("t", values)));
        if (pending) {
          ASSERT_DONE(pending);
        }

        // Mismatches name world ranks and the set.
        if (rank < 2) {
          std::vector<float> odd(static_cast<std::size_t>(rank + 1), 1.0F);
          EXPECT_THAT(
              submit(runtime, on(1, allreduce_of("odd", odd)))->wait().error().message,
              HasSubstr("tensor 'odd' of process set 1: rank 0 submitted shape [1], but rank "
                        "1 submitted shape [2]"));
        }
      },
      with_sets({{0, 1}}));
}

}  // namespace
}  // namespace kolo::test::process_sets_test
