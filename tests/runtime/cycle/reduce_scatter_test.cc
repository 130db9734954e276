// Reduce-scatter against a plain reference: every operation on every type, complex numbers with
// both parts, scale factors, 1 to 9 ranks, fewer rows than ranks and odd numbers of rows, out of
// place and in place. Ranks are threads.
#include "runtime/device/element.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>

namespace kolo::test {
namespace {

using Number = std::complex<double>;

DataType part_of(DataType type) {
  return type == DataType::kComplex64 ? DataType::kFloat32 : DataType::kFloat64;
}

void store(DataType type, std::byte* to, Number value) {
  store_element(type, to, value.real());
  if (is_complex(type)) store_element(part_of(type), to + size_of(type) / 2, value.imag());
}

Number load(DataType type, const std::byte* from) {
  const double real = load_element(type, from);
  return {real, is_complex(type) ? load_element(part_of(type), from + size_of(type) / 2) : 0.0};
}

/// Values so small that sums and products of nine are exact in every type.
Number value_at(DataType type, ReduceOp op, int rank, std::size_t element) {
  const auto mixed = (element * 7 + static_cast<std::size_t>(rank) * 3) % 9;
  if (type == DataType::kBool) return static_cast<double>(mixed % 2);
  double real = static_cast<double>(mixed % 4);
  if (op == ReduceOp::kProduct) real = mixed == 4 ? 2 : 1;
  if (type != DataType::kUInt8 && mixed % 3 == 2) real = -real;
  return {real, is_complex(type) ? static_cast<double>(mixed % 2) : 0};
}

Number reduced(DataType type, ReduceOp op, double scale, int size, std::size_t element) {
  Number result = value_at(type, op, 0, element);
  for (int rank = 1; rank < size; ++rank) {
    const Number next = value_at(type, op, rank, element);
    if (op == ReduceOp::kMin) result = std::min(result.real(), next.real());
    if (op == ReduceOp::kMax) result = std::max(result.real(), next.real());
    if (op == ReduceOp::kProduct) result *= next;
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) result += next;
  }
  if (type == DataType::kBool) return result.real() != 0;
  if (op == ReduceOp::kAverage) result /= size;
  result *= scale;
  return is_floating(type) || is_complex(type) ? result : std::trunc(result.real());
}

struct Case {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t rows = 0;
  std::int64_t width = 1;
  double prescale = 1;
  double postscale = 1;
};

void check(Runtime& runtime, const Case& c, int rank, int size, Placement placement) {
  const std::size_t element = size_of(c.type);
  const auto count = static_cast<std::size_t>(c.rows * c.width);
  Bytes input(count * element);
  for (std::size_t i = 0; i < count; ++i)
    store(c.type, input.data() + i * element, value_at(c.type, c.op, rank, i));
  std::int64_t first = 0;
  for (int r = 0; r < rank; ++r) first += even_share(c.rows, r, size);
  const auto begin = static_cast<std::size_t>(first * c.width);
  const auto mine = static_cast<std::size_t>(even_share(c.rows, rank, size) * c.width);
  GuardedMemory memory(input, mine * element, placement, begin * element);
  Submission submission;
  submission.name = "reducescatter";
  submission.signature = {.kind = OperationKind::kReduceScatter,
                          .type = c.type,
                          .op = c.op,
                          .prescale = c.prescale,
                          .postscale = c.postscale,
                          .shape = {c.rows, c.width}};
  submission.input = memory.input();
  submission.allocate = [&](const Shape&) { return memory.output(); };
  const Status status = submit(runtime, std::move(submission))->wait();
  if (!is_supported(c.type, c.op)) {
    ASSERT_FALSE(status.ok());
    ASSERT_THAT(status.error().message,
                testing::HasSubstr(
                    fmt::format("{} is not defined on {}", to_string(c.op), to_string(c.type))));
    return;
  }
  ASSERT_TRUE(status.ok()) << status.error().message;
  ASSERT_EQ(memory.damage(), "");
  const Bytes result = memory.result();
  for (std::size_t i = 0; i < mine; ++i) {
    const Number expected = reduced(c.type, c.op, c.prescale * c.postscale, size, begin + i);
    const Number actual = load(c.type, result.data() + i * element);
    const double tolerance = is_floating(c.type) || is_complex(c.type) ? 0.01 : 0;
    ASSERT_LE(std::abs(actual - expected), tolerance * std::abs(expected))
        << "element " << i << " is " << actual << " and should be " << expected;
  }
}

class ReduceScatter : public testing::TestWithParam<int> {
 protected:
  /// Checks every placement; each rank begins with another one.
  static void check_here(Runtime& runtime, const Case& c, int rank, int size) {
    for (int p = 0; p < 3; ++p) {
      const auto placement = static_cast<Placement>((p + rank) % 3);
      SCOPED_TRACE(fmt::format("rank {}: {} of {}, {} x {} elements, scales {} and {}, {}", rank,
                               to_string(c.op), to_string(c.type), c.rows, c.width, c.prescale,
                               c.postscale, to_string(placement)));
      ASSERT_NO_FATAL_FAILURE(check(runtime, c, rank, size, placement));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ReduceScatter, testing::Range(1, 10));

TEST_P(ReduceScatter, EveryOperationOnEveryType) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    for (int t = 0; t < kDataTypeCount; ++t)
      for (const ReduceOp op :
           {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct})
        for (const std::int64_t rows : {0, 1, 7, 63, 64, 65, 1000}) {
          const Case c{static_cast<DataType>(t), op, rows, rows % 2 == 0 ? 1 : 3};
          ASSERT_NO_FATAL_FAILURE(check_here(runtime, c, rank, size));
        }
  });
}

TEST_P(ReduceScatter, Scales) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    for (int t = 0; t < kDataTypeCount; ++t) {
      const auto type = static_cast<DataType>(t);
      if (type == DataType::kBool) continue;  // takes no factors: Misuse says so
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage})
        for (const auto& [prescale, postscale] : {std::pair(2.0, 1.0), {1.0, 3.0}, {2.0, 3.0}})
          for (const std::int64_t rows : {1, 65}) {
            // An integer average is rounded before the last factor; an integer sum is exact.
            if (op == ReduceOp::kAverage && !is_floating(type) && !is_complex(type)) continue;
            const Case c{type, op, rows, 3, prescale, postscale};
            ASSERT_NO_FATAL_FAILURE(check_here(runtime, c, rank, size));
          }
    }
  });
}

TEST(ReduceScatterMisuse, AdasumIsRefused) {
  run_local_world(2, [](int, Runtime& runtime) {
    Rows<float> rows{{1, 2}, {}, {}};
    auto submission = rows_of(OperationKind::kReduceScatter, "r", rows, {2});
    submission.signature.op = ReduceOp::kAdasum;
    const Status status = submit(runtime, std::move(submission))->wait();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, testing::HasSubstr("adasum combines whole tensors"));
  });
}

}  // namespace
}  // namespace kolo::test
