// The collectives of in-order submission against a plain reference: every kind, every type, 1 to 9
// ranks, odd counts, out of place and in place, by control segments, by windows and by messages; on
// overlapping process sets at once. Ranks are threads.
#include "runtime/device/element.h"
#include "runtime/memory/control_segment.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/sanitizers.h"
#include "tests/support/sized_worlds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>

namespace kolo::test::ordered_kinds_test {
namespace {

struct Call {
  OperationKind kind = OperationKind::kAllreduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;  ///< as in OrderedArguments
  std::size_t root = 0;   ///< virtual rank in the set
  Placement placement = Placement::kApart;
};

constexpr OperationKind kKinds[] = {OperationKind::kAllreduce,     OperationKind::kBroadcast,
                                    OperationKind::kAllgather,     OperationKind::kAlltoall,
                                    OperationKind::kReduceScatter, OperationKind::kBarrier,
                                    OperationKind::kGather,        OperationKind::kScatter};

/// Calls that are the same on every rank; counts below, at and above the size of a cache line, of a
/// control segment and of a block.
std::vector<Call> calls_of(unsigned seed, int number, int ranks) {
  constexpr std::size_t kCounts[] = {0, 1, 3, 7, 13, 1000, 4097, 8191, 70'001};
  std::mt19937 random(seed);
  std::vector<Call> calls;
  while (static_cast<int>(calls.size()) < number) {
    const Call call{kKinds[random() % std::size(kKinds)],
                    static_cast<DataType>(random() % kDataTypeCount),
                    static_cast<ReduceOp>(random() % kReduceOpCount),
                    kCounts[random() % std::size(kCounts)],
                    random() % static_cast<std::size_t>(ranks),
                    static_cast<Placement>(random() % 4)};
    const bool exact = call.op == ReduceOp::kSum || call.op == ReduceOp::kMax;
    // An all-reduce refuses a shifted buffer, and a broadcast has one buffer.
    const bool no_call =
        call.placement == Placement::kShifted &&
        (call.kind == OperationKind::kAllreduce || call.kind == OperationKind::kBroadcast);
    if (exact && !no_call && is_supported(call.type, call.op)) calls.push_back(call);
  }
  return calls;
}

/// Small whole numbers, so that every sum is exact in every type. Calls with other counts have
/// other ones.
double input_of(const Call& call, std::size_t element, std::size_t rank) {
  const auto value = static_cast<double>((element * 7 + rank * 3 + call.count * 2) % 5);
  return call.type == DataType::kBool ? static_cast<double>(value > 2) : value;
}

double reduced(const Call& call, std::size_t element, std::size_t ranks) {
  double result = input_of(call, element, 0);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    const double next = input_of(call, element, rank);
    result = call.op == ReduceOp::kMax ? std::max(result, next) : result + next;
  }
  return call.type == DataType::kBool ? static_cast<double>(result > 0) : result;
}

std::size_t elements_in(const Call& call, std::size_t me, std::size_t ranks) {
  if (call.kind == OperationKind::kScatter) return me == call.root ? call.count * ranks : 0;
  const bool by_parts =
      call.kind == OperationKind::kAlltoall || call.kind == OperationKind::kReduceScatter;
  if (call.kind == OperationKind::kBarrier) return 0;
  return by_parts ? call.count * ranks : call.count;
}

std::vector<double> expected_of(const Call& call, std::size_t me, std::size_t ranks) {
  std::vector<double> expected;
  const auto add = [&](std::size_t rank, std::size_t begin) {
    for (std::size_t i = 0; i < call.count; ++i)
      expected.push_back(input_of(call, begin + i, rank));
  };
  if (call.kind == OperationKind::kAllreduce)
    for (std::size_t i = 0; i < call.count; ++i) expected.push_back(reduced(call, i, ranks));
  if (call.kind == OperationKind::kReduceScatter)
    for (std::size_t i = 0; i < call.count; ++i)
      expected.push_back(reduced(call, me * call.count + i, ranks));
  if (call.kind == OperationKind::kBroadcast) add(call.root, 0);
  if (call.kind == OperationKind::kScatter) add(call.root, me * call.count);
  const bool gathers = call.kind == OperationKind::kAllgather ||
                       (call.kind == OperationKind::kGather && me == call.root);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (gathers) add(rank, 0);
    if (call.kind == OperationKind::kAlltoall) add(rank, me * call.count);
  }
  return expected;
}

/// Makes the call as member `me` of a set of `ranks` of the world.
void run_call(Runtime& runtime, std::uint32_t set, const std::vector<int>& ranks, std::size_t me,
              const Call& call) {
  const std::size_t element = size_of(call.type);
  Bytes input(elements_in(call, me, ranks.size()) * element);
  for (std::size_t i = 0; i * element < input.size(); ++i)
    store_element(call.type, input.data() + i * element, input_of(call, i, me));
  const std::vector<double> expected = expected_of(call, me, ranks.size());
  const bool is_root = me == call.root;
  const bool has_place =
      call.kind == OperationKind::kAllgather || call.kind == OperationKind::kReduceScatter ||
      (is_root && (call.kind == OperationKind::kGather || call.kind == OperationKind::kScatter));
  GuardedMemory memory(input, expected.size() * element, call.placement,
                       (has_place ? me * call.count * element : 0) +
                           (call.placement == Placement::kShifted ? element : 0));
  const bool is_barrier = call.kind == OperationKind::kBarrier;
  const bool gives = is_root || call.kind != OperationKind::kScatter;
  const bool takes = is_root || call.kind != OperationKind::kGather;
  const Status status =
      runtime.call_ordered({.kind = call.kind,
                            .input = gives ? memory.input() : nullptr,
                            .output = takes ? memory.output() : nullptr,
                            .count = is_barrier ? 0 : static_cast<std::int64_t>(call.count),
                            .type = call.type,
                            .op = call.op,
                            .root = ranks[call.root],
                            .process_set = set});
  SCOPED_TRACE(testing::Message() << to_string(call.kind) << " of " << call.count << " "
                                  << to_string(call.type) << " " << to_string(call.placement));
  ASSERT_TRUE(status.ok()) << status.error().message;
  ASSERT_EQ(memory.damage(), "");
  const Bytes result = memory.result();
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(load_element(call.type, result.data() + i * element), expected[i]) << i;
}

/// Parameters: the size of the world and KOLO_SHARED_MEMORY.
class OrderedKinds : public SizedWorlds {
 protected:
  std::vector<int> all() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank) ranks.push_back(rank);
    return ranks;
  }
};
std::vector<int> sizes() {
  if (kSanitized) return {1, 2, 3, 5, 9};
  return {1, 2, 3, 4, 5, 6, 7, 8, 9};
}
INSTANTIATE_TEST_SUITE_P(SizesAndWindows, OrderedKinds,
                         testing::Combine(testing::ValuesIn(sizes()), testing::Values("0", "1M")));

TEST_P(OrderedKinds, EveryKindTypeAndCountInAnyOrder) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        for (const Call& call : calls_of(5, kSanitized ? 30 : 200, size()))
          ASSERT_NO_FATAL_FAILURE(
              run_call(runtime, 0, all(), static_cast<std::size_t>(rank), call));
      },
      options());
}

// Where data goes one way, ranks run ahead of the others, but no further than their slots allow.
TEST_P(OrderedKinds, RootsRunAheadAndNothingIsOverwritten) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        for (std::size_t round = 0; round < (kSanitized ? 300 : 900); ++round) {
          const auto root = round / 130 % static_cast<std::size_t>(size());
          constexpr OperationKind kRooted[] = {OperationKind::kBroadcast, OperationKind::kGather,
                                               OperationKind::kScatter};
          const auto kind =
              round % 150 == 149 ? OperationKind::kAllgather : kRooted[round / 130 % 3];
          ASSERT_NO_FATAL_FAILURE(run_call(
              runtime, 0, all(), static_cast<std::size_t>(rank),
              {.kind = kind, .type = DataType::kInt32, .count = 1 + round % 320, .root = root}));
        }
      },
      options());
}

/// Gathers and scatters of each size class, whole numbers of elements around each limit.
TEST_P(OrderedKinds, GathersAndScattersOfEverySizeAndRoot) {
  constexpr std::size_t kBytes[] = {4, ControlSegment::kLargestAhead,
                                    ControlSegment::kLargestInSlot, ControlSegment::kLargest,
                                    300'000};
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        const auto ranks = static_cast<std::size_t>(size());
        for (const std::size_t bytes : kBytes)
          for (const auto kind : {OperationKind::kGather, OperationKind::kScatter})
            for (const int more : {-1, 0, 1})
              for (std::size_t root = 0; root < ranks; root += kSanitized ? ranks : 1) {
                const std::size_t most = bytes / 4 / (kind == OperationKind::kScatter ? size() : 1);
                const std::size_t count = most + static_cast<std::size_t>(more + 1) - 1;
                if (most == 0) continue;
                ASSERT_NO_FATAL_FAILURE(run_call(runtime, 0, all(), static_cast<std::size_t>(rank),
                                                 {.kind = kind, .count = count, .root = root}));
              }
      },
      options());
}

// As above, with inputs that use the control segments' rings: all lengths, different values in each
// call, and only some calls that all ranks wait for.
TEST_P(OrderedKinds, WhatGoesRoundOverwritesNothing) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        std::mt19937 random(23);
        for (int round = 0; round < (kSanitized ? 40 : 400); ++round) {
          const std::size_t count =
              200 + random() % (ControlSegment::kLargest / sizeof(std::int32_t) - 200);
          const int root = round / 10 % size();
          const bool is_sum = random() % 5 == 0;
          std::vector<std::int32_t> values(count);
          for (std::size_t i = 0; i < count; ++i)
            values[i] = is_sum || rank == root ? round * 100'000 + static_cast<int>(i) : 0;
          auto* const memory = reinterpret_cast<std::byte*>(values.data());
          const auto kind = is_sum ? OperationKind::kAllreduce : OperationKind::kBroadcast;
          const Status status = runtime.call_ordered({.kind = kind,
                                                      .input = memory,
                                                      .output = memory,
                                                      .count = static_cast<std::int64_t>(count),
                                                      .type = DataType::kInt32,
                                                      .op = ReduceOp::kMax,
                                                      .root = root});
          ASSERT_TRUE(status.ok()) << status.error().message;
          std::vector<std::int32_t> expected(count);
          std::iota(expected.begin(), expected.end(), round * 100'000);
          ASSERT_EQ(values, expected) << round << " " << count;
        }
      },
      options());
}

TEST_P(OrderedKinds, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> arrived = 0;
  run_local_world(
      size(),
      [&](int, Runtime& runtime) {
        for (int round = 1; round <= 50; ++round) {
          ++arrived;
          ASSERT_TRUE(runtime.call_ordered({.kind = OperationKind::kBarrier}).ok());
          ASSERT_GE(arrived.load(), round * size());
        }
      },
      options());
}

const std::vector<std::vector<int>> kOverlapping = {
    {0, 1, 2, 3}, {0, 1}, {1, 2}, {0, 3}, {1, 2, 3}};

/// A call is refused if its element count over all ranks does not fit into an int64.
TEST(OrderedCalls, OfMorePartsThanThereAreAddressesAreRefused) {
  run_local_world(4, [](int, Runtime& runtime) {
    std::vector<float> memory(4, 1.0F);
    for (const auto kind : {OperationKind::kReduceScatter, OperationKind::kAlltoall}) {
      OrderedArguments call{.kind = kind, .count = std::int64_t{1} << 62};
      call.input = reinterpret_cast<const std::byte*>(memory.data());
      call.output = reinterpret_cast<std::byte*>(memory.data());
      const Status status = runtime.call_ordered(call);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(status.error().message,
                  testing::HasSubstr("4611686018427387904 elements for each of 4 ranks"));
    }
  });
}

TEST(OrderedCalls, OfScattersOfMoreBytesThanThereAreAddressesAreRefused) {
  run_local_world(4, [](int rank, Runtime& runtime) {
    float value = 1.0F;
    const Status status =
        runtime.call_ordered({.kind = OperationKind::kScatter,
                              .input = rank == 0 ? reinterpret_cast<std::byte*>(&value) : nullptr,
                              .output = reinterpret_cast<std::byte*>(&value),
                              .count = std::int64_t{1} << 60});
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message,
                testing::HasSubstr("shape [4, 1152921504606846976] of float32 is more bytes"));
  });
}

/// Only the root has to give an output of a gather and an input of a scatter.
TEST(OrderedCalls, WithoutMemoryWhereTheRootNeedsItAreRefused) {
  for (const std::int64_t count : {1, 100'000}) {
    for (const auto kind : {OperationKind::kGather, OperationKind::kScatter}) {
      run_local_world(2, [&](int rank, Runtime& runtime) {
        std::vector<float> memory(200'000, 1);
        auto* const bytes = reinterpret_cast<std::byte*>(memory.data());
        const bool gathers = kind == OperationKind::kGather;
        const Status status = runtime.call_ordered({.kind = kind,
                                                    .input = gathers ? bytes : nullptr,
                                                    .output = gathers ? nullptr : bytes,
                                                    .count = count});
        if (rank == 0) {
          ASSERT_FALSE(status.ok());
          EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
          EXPECT_THAT(status.error().message, testing::HasSubstr("null pointer"));
        }
        // Nobody leaves before the root has made its call.
        EXPECT_FALSE(runtime.call_ordered({.kind = OperationKind::kBarrier}).ok());
      });
    }
  }
}

TEST(OrderedSets, OverlappingOnesRunAtOnce) {
  LocalWorldOptions options;
  options.process_sets = {kOverlapping.begin() + 1, kOverlapping.end()};
  run_local_world(
      4,
      [&](int rank, Runtime& runtime) {
        std::vector<std::thread> threads;
        for (std::uint32_t set = 0; set < kOverlapping.size(); ++set) {
          const auto& ranks = kOverlapping[set];
          const auto me = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
          if (me == static_cast<std::ptrdiff_t>(ranks.size())) continue;
          threads.emplace_back([&, set, me] {
            for (const Call& call : calls_of(set, 100, static_cast<int>(ranks.size())))
              ASSERT_NO_FATAL_FAILURE(
                  run_call(runtime, set, ranks, static_cast<std::size_t>(me), call));
          });
        }
        for (std::thread& thread : threads) thread.join();
      },
      options);
}

/// Every set has more operations than slots, begun in another order on every rank: a slot that one
/// set holds must not block another set.
TEST(OrderedSets, SlotsOfOneSetDoNotLockOutAnother) {
  constexpr std::size_t kCount = 100'000;
  LocalWorldOptions options;
  options.process_sets = {kOverlapping.begin() + 1, kOverlapping.end()};
  run_local_world(
      4,
      [&](int rank, Runtime& runtime) {
        std::vector<std::uint32_t> order = {0, 1, 2, 3, 4};
        std::rotate(order.begin(), order.begin() + rank, order.end());
        std::vector<std::vector<float>> tensors(order.size() * 6);
        std::vector<std::tuple<std::shared_ptr<Work>, std::uint32_t, std::size_t>> works;
        for (const std::uint32_t set : order) {
          const auto& ranks = kOverlapping[set];
          if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
          for (std::size_t i = 0; i < 6; ++i) {
            auto& tensor = tensors[set * 6 + i];
            tensor.assign(kCount, 1);
            Submission submission = allreduce_of("", tensor);
            submission.process_set = set;
            auto work = runtime.submit_ordered(std::move(submission));
            ASSERT_TRUE(work.ok()) << work.error().message;
            works.emplace_back(*work, set, set * 6 + i);
          }
        }
        for (const auto& [work, set, tensor] : works) {
          const Status status = work->wait();
          ASSERT_TRUE(status.ok()) << status.error().message;
          ASSERT_EQ(tensors[tensor].back(), static_cast<float>(kOverlapping[set].size()));
        }
      },
      options);
}

/// A partition is reused: the former set's flags must not count.
TEST(OrderedSets, ComeAndGo) {
  run_local_world(3, [&](int rank, Runtime& runtime) {
    for (int round = 0; round < 10; ++round) {
      const std::vector<int> ranks = round % 2 == 0 ? std::vector{0, 1} : std::vector{1, 2};
      const auto added = runtime.add_process_set(ranks);
      ASSERT_TRUE(added.ok() && (*added)->wait().ok());
      const auto set = static_cast<std::uint32_t>((*added)->outcome().value);
      const auto me = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
      if (me < 2) {
        for (const Call& call : calls_of(9, 11, 2))
          ASSERT_NO_FATAL_FAILURE(
              run_call(runtime, set, ranks, static_cast<std::size_t>(me), call));
      }
      const auto removed = runtime.remove_process_set(set);
      ASSERT_TRUE(removed.ok() && (*removed)->wait().ok());
    }
  });
}

}  // namespace
}  // namespace kolo::test::ordered_kinds_test
