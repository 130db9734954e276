// In-order all-reduces over the control segments with memory in the arena, and what happens if some
// of the memory lies elsewhere. Ranks are threads.
#include "tests/support/arena_memory.h"
#include "tests/support/sized_worlds.h"
#include "tests/support/trace_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>

namespace kolo::test::arena_ordered_test {
namespace {

class ArenaOrdered : public SizedWorlds {};
INSTANTIATE_TEST_SUITE_P(SizesAndWindows, ArenaOrdered,
                         testing::Combine(testing::Values(2, 3, 5), testing::Values("1M")));

/// Floats: two-shot if the memory of the previous call was in the arena; two-shot for any memory;
/// the largest two-shot size; and larger ones.
constexpr std::size_t kCounts[] = {1'501, 9'001, 16'384, 16'385, 100'003};

enum class Form { kInPlace, kOutOfPlace };

float sum_at(std::size_t place, std::size_t ranks) {
  float sum = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) sum += element(rank, place);
  return sum;
}

std::byte* bytes_of(float* data) { return reinterpret_cast<std::byte*>(data); }

struct Call {
  Call(Runtime& runtime, std::size_t of_count, std::size_t of_rank, Shared shared, Form form)
      : count(of_count), rank(of_rank) {
    input = floats(runtime, count, shared.input);
    output = form == Form::kInPlace ? input : floats(runtime, count, shared.output);
    for (std::size_t i = 0; i < count; ++i) input.get()[i] = element(rank, i);
    if (output != input) std::fill_n(output.get(), count, -1.0F);
  }

  Status run(Runtime& runtime) const {
    return runtime.allreduce_ordered(bytes_of(input.get()), bytes_of(output.get()),
                                     static_cast<std::int64_t>(count), DataType::kFloat32,
                                     ReduceOp::kSum);
  }
  Submission submission() const {
    Submission made;
    made.signature.shape = {static_cast<std::int64_t>(count)};
    made.input = bytes_of(input.get());
    made.output = bytes_of(output.get());
    return made;
  }

  void expect_right(std::size_t ranks) const {
    for (std::size_t i = 0; i < count; ++i) {
      const float sum = sum_at(i, ranks);
      if (output.get()[i] != sum) FAIL() << output.get()[i] << " instead of " << sum << " at " << i;
      if (output != input && input.get()[i] != element(rank, i))
        FAIL() << "the input was written at " << i;
    }
  }

  std::size_t count;
  std::size_t rank;
  std::shared_ptr<float> input;
  std::shared_ptr<float> output;
};

TEST_P(ArenaOrdered, WhateverMemoryEachRankHas) {
  const auto ranks = static_cast<std::size_t>(size());
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        const auto me = static_cast<std::size_t>(rank);
        for (std::size_t round = 0; round < kRounds; ++round)
          for (const std::size_t count : kCounts)
            for (const Form form : {Form::kInPlace, Form::kOutOfPlace}) {
              SCOPED_TRACE(fmt::format("rank {}: {} floats in round {}", rank, count, round));
              const Call call(runtime, count, me, mixture(me, round), form);
              const Status status = call.run(runtime);
              ASSERT_TRUE(status.ok()) << status.error().message;
              ASSERT_NO_FATAL_FAILURE(call.expect_right(ranks));
            }
      },
      options());
}

TEST_P(ArenaOrdered, AllAtOnce) {
  const auto ranks = static_cast<std::size_t>(size());
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        const auto me = static_cast<std::size_t>(rank);
        for (std::size_t round = 0; round < kRounds; ++round) {
          std::vector<Call> calls;
          std::vector<std::shared_ptr<Work>> works;
          for (const std::size_t count : kCounts)
            for (const Form form : {Form::kInPlace, Form::kOutOfPlace}) {
              // Calls that fit the control segments and calls that do not, in turn.
              const Shared shared = mixture(me, calls.size() % 3 == 0 ? kRounds - 1 : round);
              const Call& call = calls.emplace_back(runtime, count, me, shared, form);
              auto work = runtime.submit_ordered(call.submission());
              ASSERT_TRUE(work.ok()) << work.error().message;
              works.push_back(*work);
            }
          for (std::size_t i = 0; i < calls.size(); ++i) {
            SCOPED_TRACE(fmt::format("rank {}: call {} of round {}", rank, i, round));
            const Status status = works[i]->wait();
            ASSERT_TRUE(status.ok()) << status.error().message;
            ASSERT_NO_FATAL_FAILURE(calls[i].expect_right(ranks));
          }
        }
      },
      options());
}

TEST_P(ArenaOrdered, PrescaledAndAveraged) {
  const auto ranks = static_cast<std::size_t>(size());
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        const auto me = static_cast<std::size_t>(rank);
        for (const std::size_t count : kCounts)
          for (const Form form : {Form::kInPlace, Form::kOutOfPlace}) {
            const Call call(runtime, count, me, kAllShared, form);
            Submission submission = call.submission();
            submission.signature.prescale = 0.5;
            submission.signature.postscale = 4;
            submission.signature.op = ReduceOp::kSum;
            auto work = runtime.submit_ordered(std::move(submission));
            ASSERT_TRUE(work.ok() && (*work)->wait().ok());
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_EQ(call.output.get()[i], 2 * sum_at(i, ranks)) << i;

            const Call mean(runtime, count, me, kAllShared, form);
            ASSERT_TRUE(runtime
                            .allreduce_ordered(bytes_of(mean.input.get()),
                                               bytes_of(mean.output.get()),
                                               static_cast<std::int64_t>(count), DataType::kFloat32,
                                               ReduceOp::kAverage)
                            .ok());
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_FLOAT_EQ(mean.output.get()[i], sum_at(i, ranks) / static_cast<float>(ranks))
                  << i;
          }
      },
      options());
}

// Two sets in a world of four; rank 1 is a member of both.
TEST(ArenaOrderedSets, HaveTheirOwn) {
  const std::vector<std::vector<int>> sets = {{0, 1}, {1, 2, 3}};
  LocalWorldOptions options;
  options.process_sets = sets;
  run_local_world(
      4,
      [&](int rank, Runtime& runtime) {
        for (std::size_t set = 0; set < sets.size(); ++set) {
          const auto& ranks = sets[set];
          const auto found = std::find(ranks.begin(), ranks.end(), rank);
          if (found == ranks.end()) continue;
          const auto me = static_cast<std::size_t>(found - ranks.begin());
          for (const std::size_t count : kCounts)
            for (const Shared shared : {kAllShared, kMixtures[me]}) {
              const Call call(runtime, count, me, shared, Form::kInPlace);
              const Status status =
                  runtime.call_ordered({.input = bytes_of(call.input.get()),
                                        .output = bytes_of(call.output.get()),
                                        .count = static_cast<std::int64_t>(count),
                                        .process_set = static_cast<std::uint32_t>(set + 1)});
              ASSERT_TRUE(status.ok()) << status.error().message;
              ASSERT_NO_FATAL_FAILURE(call.expect_right(ranks.size()));
            }
        }
      },
      options);
}

/// The algorithms of one rank's ordered all-reduces, in order.
std::vector<std::string> algorithms_of(const Events& events) {
  std::vector<std::string> names;
  for (const auto& operation : select(events, "cat", "operation"))
    names.push_back(operation.at("name"));
  return names;
}

// After each failed try, twice as many calls go to schedules before the next try, until a try
// succeeds.
TEST(ArenaOrderedWays, WhatIsDeclinedIsTriedEverMoreSeldom) {
  constexpr std::size_t kCount = 50'000;
  constexpr int kPrivate = 12;
  constexpr int kShared = 10;
  const TemporaryFolder folder;
  LocalWorldOptions options;
  options.variables["KOLO_TIMELINE"] = folder.path("trace.json");
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        for (int i = 0; i < kPrivate + kShared; ++i) {
          const bool shared = rank == 0 || i >= kPrivate;
          const Call call(runtime, kCount, static_cast<std::size_t>(rank),
                          shared ? kAllShared : Shared{}, Form::kInPlace);
          ASSERT_TRUE(call.run(runtime).ok());
          ASSERT_NO_FATAL_FAILURE(call.expect_right(2));
        }
      },
      options);
  for (int rank = 0; rank < 2; ++rank) {
    const auto algorithms =
        algorithms_of(read_trace(folder.path(fmt::format("trace.{}.json", rank))));
    ASSERT_EQ(algorithms.size(), std::size_t{kPrivate + kShared});
    // Tried: calls 0, 2, 5, 10 and 19.
    constexpr std::size_t kFirst = 19;
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(algorithms[i], i < kFirst ? "allreduce_mapped" : "two_shot");
    }
  }
}

// A small call is summed in place if the last call of its size could have been.
TEST(ArenaOrderedWays, WhatIsSmallGoesTheWayThatTheLastOneShowed) {
  constexpr std::size_t kSmall = thresholds::kTwoShotInArena / sizeof(float);
  constexpr std::size_t kLargest = (64 << 10) / sizeof(float);  // what two ranks may sum in one hop
  struct Turn {
    std::size_t count;
    bool shared;
    const char* way;
    const char* without_cores = "one_shot";
  };
  // Smaller or larger calls do not change this.
  constexpr Turn kTurns[] = {{kSmall, true, "one_shot"},
                             {kSmall - 1, true, "one_shot"},
                             {kSmall, true, "two_shot"},
                             {kSmall - 1, false, "one_shot"},
                             {kLargest, false, "two_shot"},
                             {2 * kSmall, false, "one_shot"},
                             {kSmall, false, "one_shot"},
                             {kLargest + 1, true, "two_shot", "two_shot"},
                             {2 * kSmall, true, "one_shot"},
                             {2 * kSmall, true, "two_shot"},
                             {4 * kSmall, true, "two_shot"},
                             {kSmall, true, "two_shot"},
                             {4 * kSmall, true, "two_shot", "two_shot"}};
  for (const bool at_once : {false, true}) {
    const TemporaryFolder folder;
    LocalWorldOptions options;
    options.variables["KOLO_TIMELINE"] = folder.path("trace.json");
    std::atomic<bool> have_cores = false;
    run_local_world(
        2,
        [&](int rank, Runtime& runtime) {
          if (runtime.world().has_core_for_each_rank()) have_cores = true;
          std::vector<Call> calls;
          std::vector<std::shared_ptr<Work>> works;
          for (const Turn& turn : kTurns) {
            // One rank's memory changes; the other rank must see it.
            const bool shared = rank == 0 || turn.shared;
            const Call& call = calls.emplace_back(runtime, turn.count, std::size_t(rank),
                                                  shared ? kAllShared : Shared{}, Form::kInPlace);
            if (at_once) {
              works.push_back(*runtime.submit_ordered(call.submission()));
            } else {
              ASSERT_TRUE(call.run(runtime).ok());
            }
          }
          for (const auto& work : works) ASSERT_TRUE(work->wait().ok());
          for (const Call& call : calls) ASSERT_NO_FATAL_FAILURE(call.expect_right(2));
        },
        options);
    for (int rank = 0; rank < 2; ++rank) {
      const auto algorithms =
          algorithms_of(read_trace(folder.path(fmt::format("trace.{}.json", rank))));
      ASSERT_EQ(algorithms.size(), std::size(kTurns));
      for (std::size_t i = 0; i < algorithms.size(); ++i) {
        const Turn& turn = kTurns[i];
        EXPECT_EQ(algorithms[i], have_cores ? turn.way : turn.without_cores)
            << i << " at_once " << at_once;
      }
    }
  }
}

// Parameter: the number of threads that sum a rank's share.
class ArenaOrderedThreads : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Threads, ArenaOrderedThreads, testing::Values("1", "3"));

TEST_P(ArenaOrderedThreads, TheLargestAndBeyond) {
  constexpr std::size_t kLargest = thresholds::kExchangeInArena / sizeof(float);
  const TemporaryFolder folder;
  LocalWorldOptions options;
  options.variables["KOLO_TIMELINE"] = folder.path("trace.json");
  options.variables["KOLO_REDUCE_THREADS"] = GetParam();
  run_local_world(
      2,
      [&](int rank, Runtime& runtime) {
        for (const std::size_t count : {kLargest, kLargest + 1}) {
          const Call call(runtime, count, static_cast<std::size_t>(rank), kAllShared,
                          Form::kInPlace);
          ASSERT_TRUE(call.run(runtime).ok());
          ASSERT_NO_FATAL_FAILURE(call.expect_right(2));
        }
      },
      options);
  EXPECT_THAT(algorithms_of(read_trace(folder.path("trace.0.json"))),
              testing::ElementsAre("two_shot", "allreduce_mapped"));
}

TEST(ArenaOrderedFailures, DifferentCallsNameBoth) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    const Call call(runtime, rank == 1 ? 40'000 : 50'000, static_cast<std::size_t>(rank),
                    kAllShared, Form::kInPlace);
    const Status status = call.run(runtime);
    ASSERT_FALSE(status.ok());
    for (const char* const part : {"allreduce of 40000 float32 by sum",
                                   "allreduce of 50000 float32 by sum", "in the same order"})
      EXPECT_THAT(status.error().message, testing::HasSubstr(part));
  });
}

}  // namespace
}  // namespace kolo::test::arena_ordered_test
