// All-reduce of every type with every operation through the whole runtime, by windows and by
// messages, for odd sizes; and Adasum against the combination tree that its schedule promises.
#include "runtime/device/device.h"
#include "runtime/device/element.h"
#include "tests/support/sized_worlds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

namespace kolo::test::types_test {
namespace {

using Bytes = std::vector<std::byte>;

/// Parameters: the size of the world and KOLO_SHARED_MEMORY.
class Types : public SizedWorlds {};
INSTANTIATE_TEST_SUITE_P(SizesAndWindows, Types,
                         testing::Combine(testing::Values(1, 2, 3, 5, 9),
                                          testing::Values("0", "1M")));

int input_of(DataType type, std::size_t element, int rank) {
  const int value = static_cast<int>((element + static_cast<std::size_t>(rank)) % 3);
  return type == DataType::kBool ? value % 2 : value;
}

double expected_of(DataType type, ReduceOp op, std::size_t element, int size) {
  double result = input_of(type, element, 0);
  for (int rank = 1; rank < size; ++rank) {
    const double next = input_of(type, element, rank);
    if (op == ReduceOp::kMin) result = std::min(result, next);
    if (op == ReduceOp::kMax) result = std::max(result, next);
    if (op == ReduceOp::kProduct) result *= next;
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) result += next;
  }
  if (type == DataType::kBool) return result != 0;
  if (op != ReduceOp::kAverage) return result;
  return is_integer(type) ? std::trunc(result / size) : result / size;
}

Submission submission_of(DataType type, ReduceOp op, Bytes& memory, std::size_t count) {
  Submission submission;
  submission.name = fmt::format("{}.{}.{}", to_string(type), to_string(op), count);
  submission.signature.type = type;
  submission.signature.op = op;
  submission.signature.shape = {static_cast<std::int64_t>(count)};
  submission.input = memory.data();
  submission.output = memory.data();
  return submission;
}

TEST_P(Types, EveryTypeTakesEveryOperation) {
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        for (int t = 0; t < kDataTypeCount; ++t)
          for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                                    ReduceOp::kMax, ReduceOp::kProduct})
            for (const std::size_t count : {0U, 1U, 37U, 1001U}) {
              const auto type = static_cast<DataType>(t);
              const std::size_t width = size_of(type);
              Bytes memory(std::max<std::size_t>(count * width, 1));
              for (std::size_t i = 0; i < count; ++i)
                store_element(type, memory.data() + i * width, input_of(type, i, rank));
              auto work = runtime.submit(submission_of(type, op, memory, count));
              ASSERT_TRUE(work.ok()) << work.error().message;
              const Status status = (*work)->wait();
              if (!is_supported(type, op)) {
                ASSERT_FALSE(status.ok());
                ASSERT_THAT(status.error().message,
                            testing::HasSubstr(fmt::format("{} is not defined on {}", to_string(op),
                                                           to_string(type))));
                continue;
              }
              ASSERT_TRUE(status.ok()) << status.error().message;
              for (std::size_t i = 0; i < count; ++i) {
                const double expected = expected_of(type, op, i, size());
                ASSERT_NEAR(load_element(type, memory.data() + i * width), expected, expected / 100)
                    << to_string(op) << " of " << to_string(type) << ", element " << i;
              }
            }
      },
      options());
}

std::vector<double> combined(std::vector<double> a, const std::vector<double>& b) {
  host_device().adasum(DataType::kFloat64, reinterpret_cast<std::byte*>(a.data()),
                       reinterpret_cast<const std::byte*>(a.data()),
                       reinterpret_cast<const std::byte*>(b.data()), a.size());
  return a;
}

/// Ranks beyond the largest power of two are folded in first; then each half into the other.
std::vector<double> adasum_of(std::vector<std::vector<double>> vectors) {
  const std::size_t doubling = std::bit_floor(vectors.size());
  for (std::size_t i = doubling; i < vectors.size(); ++i)
    vectors[i - doubling] = combined(vectors[i - doubling], vectors[i]);
  for (std::size_t distance = doubling / 2; distance > 0; distance /= 2)
    for (std::size_t i = 0; i < distance; ++i)
      vectors[i] = combined(vectors[i], vectors[i + distance]);
  return vectors[0];
}

TEST_P(Types, AdasumIsTheTreeOfPairs) {
  constexpr std::size_t kCount = 501;
  const auto vector_of = [](int rank) {
    std::vector<double> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      values[i] = std::sin(static_cast<double>(i) * (rank + 1)) + rank * 0.25;
    return values;
  };
  std::vector<std::vector<double>> all;
  for (int rank = 0; rank < size(); ++rank) all.push_back(vector_of(rank));
  const std::vector<double> expected = adasum_of(all);
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        // Two at once must not share a buffer: each tensor has its own coefficients.
        std::vector<std::vector<double>> tensors(2, vector_of(rank));
        std::vector<std::shared_ptr<Work>> works;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          Submission submission;
          submission.name = "adasum" + std::to_string(i);
          submission.signature.type = DataType::kFloat64;
          submission.signature.op = ReduceOp::kAdasum;
          submission.signature.shape = {kCount};
          submission.input = reinterpret_cast<const std::byte*>(tensors[i].data());
          submission.output = reinterpret_cast<std::byte*>(tensors[i].data());
          auto work = runtime.submit(std::move(submission));
          ASSERT_TRUE(work.ok()) << work.error().message;
          works.push_back(*work);
        }
        for (const auto& work : works) ASSERT_TRUE(work->wait().ok());
        for (const auto& tensor : tensors) EXPECT_EQ(tensor, expected);
      },
      options());
}

}  // namespace
}  // namespace kolo::test::types_test
