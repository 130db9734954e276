// kolo-perf's verifier: its expected results are those of the collectives, and it finds every kind
// of wrong result.
#include "tools/perf/pattern.h"
#include "runtime/device/element.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

namespace kolo::perf::pattern_test {
namespace {

using Memory = std::vector<std::byte>;

constexpr DataType kType = DataType::kFloat32;
// Neither a multiple of the period nor below it.
constexpr std::int64_t kCount = 2 * kPeriod + 17;

Memory memory_of(const Problem& problem, const Content& content, std::int64_t count) {
  Memory memory(static_cast<std::size_t>(count) * size_of(problem.type));
  write(content, problem.type, memory.data());
  return memory;
}

Memory input(const Problem& problem, int rank, int ranks) {
  return memory_of(problem, input_of(problem, rank, ranks), input_count(problem, rank, ranks));
}

Memory expected(const Problem& problem, int rank, int ranks) {
  return memory_of(problem, expected_of(problem, rank, ranks), output_count(problem, rank, ranks));
}

std::int64_t wrong(const Problem& problem, int rank, int ranks, const Memory& memory) {
  return count_wrong(problem, expected_of(problem, rank, ranks), memory.data());
}

double at(const Problem& problem, const Memory& memory, std::int64_t element) {
  return load_element(problem.type,
                      memory.data() + static_cast<std::size_t>(element) * size_of(problem.type));
}

void set(const Problem& problem, Memory& memory, std::int64_t element, double value) {
  store_element(problem.type,
                memory.data() + static_cast<std::size_t>(element) * size_of(problem.type), value);
}

double combined(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:  // vectors that have no element in common
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
  }
  return 0;
}

/// The reduction of all ranks' inputs at one element, in plain code.
double reduced(const Problem& problem, int ranks, std::int64_t element) {
  double result = at(problem, input(problem, 0, ranks), element);
  for (int rank = 1; rank < ranks; ++rank) {
    result = combined(problem.op, result, at(problem, input(problem, rank, ranks), element));
  }
  if (problem.type == DataType::kBool) result = std::min(result, 1.0);
  // For pairs of x and 2x: 0 · x + 3/4 · 2x, as the paper's formula gives.
  if (problem.op == ReduceOp::kAdasum && ranks % 2 == 0) result /= 2;
  return problem.op == ReduceOp::kAverage ? result / ranks : result;
}

/// Calls `body` for every problem with up to 4 ranks, and for each rank.
void for_each_problem(const std::function<void(const Problem&, int rank, int ranks)>& body) {
  for (const Collective collective : kCollectives) {
    for (int type = 0; type < kDataTypeCount; ++type) {
      for (int op = 0; op < kReduceOpCount; ++op) {
        const Problem problem{collective, static_cast<DataType>(type), static_cast<ReduceOp>(op), 0,
                              kCount};
        if (reduces(collective) ? !is_supported(problem.type, problem.op) : op != 0) continue;
        for (int ranks = 1; ranks <= 4; ++ranks) {
          for (int rank = 0; rank < ranks; ++rank) {
            SCOPED_TRACE(std::string(to_string(collective)) + ' ' +
                         std::string(to_string(problem.type)) + ' ' +
                         std::string(to_string(problem.op)) + ", rank " + std::to_string(rank) +
                         " of " + std::to_string(ranks));
            body(problem, rank, ranks);
          }
        }
      }
    }
  }
}

TEST(Pattern, TheExpectedResultIsRight) {
  for_each_problem([](const Problem& problem, int rank, int ranks) {
    EXPECT_EQ(wrong(problem, rank, ranks, expected(problem, rank, ranks)), 0);
  });
}

TEST(Pattern, ReductionsAreExpectedToCombineTheInputs) {
  for_each_problem([](const Problem& problem, int rank, int ranks) {
    if (!reduces(problem.collective)) return;
    const bool scatters = problem.collective == Collective::kReducescatter;
    const Memory result = expected(problem, rank, ranks);
    for (const std::int64_t element : {std::int64_t{0}, std::int64_t{100}, kPeriod, kCount - 1}) {
      EXPECT_EQ(at(problem, result, element),
                reduced(problem, ranks, element + (scatters ? rank * kCount : 0)))
          << "element " << element;
    }
  });
}

TEST(Pattern, MovesAreExpectedToArriveWhole) {
  const auto same = [](const Problem& from, int sender, std::int64_t part, int receiver,
                       std::int64_t place) {
    const Memory sent = input(from, sender, 3);
    const Memory got = expected(from, receiver, 3);
    for (std::int64_t i = 0; i < kCount; ++i) {
      if (at(from, sent, part * kCount + i) != at(from, got, place * kCount + i)) return false;
    }
    return true;
  };
  EXPECT_TRUE(same({Collective::kBroadcast, kType, ReduceOp::kSum, 2, kCount}, 2, 0, 1, 0));
  EXPECT_TRUE(same({Collective::kAllgather, kType, ReduceOp::kSum, 0, kCount}, 2, 0, 1, 2));
  EXPECT_TRUE(same({Collective::kAlltoall, kType, ReduceOp::kSum, 0, kCount}, 2, 1, 1, 2));
  EXPECT_TRUE(same({Collective::kGather, kType, ReduceOp::kSum, 1, kCount}, 2, 0, 1, 2));
  EXPECT_TRUE(same({Collective::kScatter, kType, ReduceOp::kSum, 1, kCount}, 1, 2, 2, 0));
  EXPECT_TRUE(same({Collective::kSendrecv, kType, ReduceOp::kSum, 0, kCount}, 2, 0, 0, 0));
}

TEST(Pattern, OneWrongElementIsFoundWhereverItIs) {
  for_each_problem([](const Problem& problem, int rank, int ranks) {
    const Memory right = expected(problem, rank, ranks);
    const std::int64_t count = output_count(problem, rank, ranks);
    for (const std::int64_t element : {std::int64_t{0}, count / 2, count - 1}) {
      if (count == 0) continue;
      Memory broken = right;
      const double value = at(problem, right, element);
      set(problem, broken, element, problem.type == DataType::kBool ? 1 - value : value + 1);
      EXPECT_EQ(wrong(problem, rank, ranks, broken), 1) << "element " << element;
    }
  });
}

TEST(Pattern, AShiftedResultIsFound) {
  for_each_problem([](const Problem& problem, int rank, int ranks) {
    Memory result = expected(problem, rank, ranks);
    if (result.empty()) return;
    const auto width = static_cast<std::ptrdiff_t>(size_of(problem.type));
    for (const int elements : {1, 16, 64}) {
      Memory shifted = result;
      std::rotate(shifted.begin(), shifted.begin() + elements * width, shifted.end());
      EXPECT_GT(wrong(problem, rank, ranks, shifted), kCount / 50) << "by " << elements;
    }
  });
}

TEST(Pattern, AMissingOrDoubledContributionIsFound) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct, ReduceOp::kMax,
                            ReduceOp::kMin, ReduceOp::kAdasum}) {
    const Problem problem{Collective::kAllreduce, kType, op, 0, kCount};
    for (const int missing : {0, 1, 2}) {
      Memory result = expected(problem, 0, 3);
      for (std::int64_t i = 0; i < kCount; ++i) {
        // Reduces only the other ranks' inputs, one of them twice.
        const int a = missing == 0 ? 1 : 0;
        const int b = missing == 2 ? 1 : 2;
        const double first = at(problem, input(problem, a, 3), i);
        double value =
            combined(op, combined(op, first, first), at(problem, input(problem, b, 3), i));
        if (op == ReduceOp::kAverage) value /= 3;
        set(problem, result, i, value);
      }
      EXPECT_GT(wrong(problem, 0, 3, result), 0) << to_string(op) << " without rank " << missing;
    }
  }
}

TEST(Pattern, APlainSumIsNotAdasum) {
  for (const int ranks : {2, 4, 6}) {
    const Problem problem{Collective::kAllreduce, kType, ReduceOp::kAdasum, 0, kCount};
    Memory sum = expected(problem, 0, ranks);
    for (std::int64_t i = 0; i < kCount; ++i) {
      double value = 0;
      for (int rank = 0; rank < ranks; ++rank) value += at(problem, input(problem, rank, ranks), i);
      set(problem, sum, i, value);
    }
    EXPECT_EQ(wrong(problem, 0, ranks, sum), kCount) << ranks;
  }
}

/// Whether the result at a single element is some rank's input.
bool one_decides(const Problem& problem) {
  return problem.type == DataType::kBool || problem.op == ReduceOp::kMin ||
         problem.op == ReduceOp::kMax || problem.op == ReduceOp::kAdasum;
}

/// Wrong elements, over all ranks, if each has got its part of the source's input.
std::int64_t wrong_by_source(const Problem& problem, int source, int ranks) {
  const Memory sent = input(problem, source, ranks);
  const bool scatters = problem.collective == Collective::kReducescatter;
  const auto bytes = problem.count * static_cast<std::ptrdiff_t>(size_of(problem.type));
  std::int64_t found = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto begin = sent.begin() + (scatters ? rank * bytes : 0);
    found += wrong(problem, rank, ranks, Memory(begin, begin + bytes));
  }
  return found;
}

TEST(Pattern, OneRanksInputIsNotTheReduction) {
  for_each_problem([](Problem problem, int /*rank*/, int only) {
    if (!reduces(problem.collective) || only != 1) return;
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, kCount}) {
      problem.count = count;
      const bool one_place = problem.collective == Collective::kAllreduce && count == 1;
      if (one_place && one_decides(problem)) continue;
      for (const int ranks : {2, 3, 4, 7}) {
        for (int source = 0; source < ranks; ++source) {
          EXPECT_GT(wrong_by_source(problem, source, ranks), 0)
              << count << " elements of rank " << source << " of " << ranks;
        }
      }
    }
  });
}

TEST(Pattern, AnAverageMayDifferInItsLastBitOnly) {
  const Problem problem{Collective::kAllreduce, kType, ReduceOp::kAverage, 0, 8};
  Memory result = expected(problem, 0, 3);
  const auto value = static_cast<float>(at(problem, result, 3));
  set(problem, result, 3, static_cast<double>(std::nextafter(value, 100.0F)));
  EXPECT_EQ(wrong(problem, 0, 3, result), 0);
  set(problem, result, 3, static_cast<double>(value) * 1.000001);
  EXPECT_EQ(wrong(problem, 0, 3, result), 1);
}

TEST(Problem, SizesAreThoseOfTheLargerBuffer) {
  const Problem gather = sized({Collective::kAllgather, kType, ReduceOp::kSum, 0, 0}, 1024, 4);
  EXPECT_EQ(gather.count, 64);
  EXPECT_EQ(bytes_of(gather, 4), 1024U);
  EXPECT_EQ(sized({Collective::kAlltoall, kType, ReduceOp::kSum, 0, 0}, 4, 4).count, 1);
  EXPECT_EQ(sized({Collective::kBarrier, kType, ReduceOp::kSum, 0, 0}, 1024, 4).count, 0);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllreduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllgather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 4), 1);
}

}  // namespace
}  // namespace kolo::perf::pattern_test
