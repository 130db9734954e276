// Sums of half types on every path: they stay float32 until a single rounding at the end. The
// float32 sums of the inputs are exact in any order, so every path has the same bits.
#include "runtime/device/element.h"
#include "tests/support/rows.h"
#include "tests/support/sanitizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace kolo::test::half_sums_test {
namespace {

using Halves = std::vector<std::uint16_t>;

std::uint16_t half_of(DataType type, double value) {
  std::byte memory[16] = {};
  store_element(type, memory, value);
  std::uint16_t bits = 0;
  std::memcpy(&bits, memory, sizeof bits);
  return bits;
}
double value_of(DataType type, std::uint16_t bits) {
  std::byte memory[16] = {};
  std::memcpy(memory, &bits, sizeof bits);
  return load_element(type, memory);
}

/// Inputs: sums that no half type holds on the way, small numbers beside a large one, or eighths.
double input_of(DataType type, std::uint64_t i, int rank) {
  const double large = type == DataType::kFloat16 ? 2048 : 256;
  if (i % 4 == 0) return 40'000;
  if (i % 4 == 1) return rank == 0 ? large : 0.5;
  if (i % 4 == 2) return rank % 2 == 0 ? large - 1 : -large / 2;
  return static_cast<double>((i * 7 + static_cast<std::uint64_t>(rank) * 13) % 127) / 8;
}
double factor_of(std::uint64_t i, int rank) {
  constexpr double kFactors[] = {1, 1.5, 0.5, 1.25, -1};
  return kFactors[(i + static_cast<std::uint64_t>(rank)) % 5];
}

struct Call {
  DataType type = DataType::kFloat16;
  ReduceOp op = ReduceOp::kAverage;
  double prescale = 1;
  double postscale = 1;

  double input(std::uint64_t i, int rank) const {
    return op == ReduceOp::kProduct ? factor_of(i, rank) : input_of(type, i, rank);
  }
  Halves inputs(std::size_t count, int rank) const {
    Halves values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = half_of(type, input(i, rank));
    return values;
  }
  std::uint16_t result(std::uint64_t i, int size) const {
    double all = op == ReduceOp::kProduct ? 1 : 0;
    for (int rank = 0; rank < size; ++rank) {
      const double next = value_of(type, half_of(type, input(i, rank)));
      all = op == ReduceOp::kProduct ? all * next : all + next;
    }
    const double factor = prescale * postscale / (op == ReduceOp::kAverage ? size : 1);
    return half_of(type, static_cast<double>(static_cast<float>(all) * static_cast<float>(factor)));
  }
  std::string name() const {
    return fmt::format("{}.{}.{}.{}", to_string(type), to_string(op), prescale, postscale);
  }
};

std::vector<Call> calls() {
  std::vector<Call> all;
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    all.push_back({type, ReduceOp::kAverage});
    all.push_back({type, ReduceOp::kSum, 0.25, 0.5});
    all.push_back({type, ReduceOp::kSum, 1.0 / 3, 1});
    all.push_back({type, ReduceOp::kProduct});
  }
  return all;
}

constexpr std::size_t kCounts[] = {1, 300, kSanitized ? 4099 : 20'003};
/// Elements of a rank's part of a reduce-scatter: few, which use halving, and many, which use a
/// ring or two levels.
constexpr std::size_t kParts[] = {3, kSanitized ? 1'009 : 17'001};

/// A call and what it results in, worked out once for all ranks and tensors of a world.
struct Case {
  Case(const Call& its_call, int size) : call(its_call) {
    const std::size_t largest = std::max(kCounts[2], kParts[1] * static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < largest; ++i) results.push_back(call.result(i, size));
  }

  Call call;
  Halves results;
};

/// `begin`: index of the first element in the whole tensor.
void expect_results(const Case& its, const Halves& values, std::size_t count, std::size_t begin) {
  ASSERT_EQ(values.size(), count);
  const auto expected = its.results.begin() + static_cast<std::ptrdiff_t>(begin);
  if (std::equal(values.begin(), values.end(), expected)) return;
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(values[i], its.results[begin + i])
        << its.call.name() << ": element " << begin + i << " is "
        << value_of(its.call.type, values[i]) << " instead of "
        << value_of(its.call.type, its.results[begin + i]);
}

Submission submission_of(const Call& call, const std::string& name, Halves& values) {
  Submission submission;
  submission.name = name;
  submission.signature.type = call.type;
  submission.signature.op = call.op;
  submission.signature.prescale = call.prescale;
  submission.signature.postscale = call.postscale;
  submission.signature.shape = {static_cast<std::int64_t>(values.size())};
  submission.input = reinterpret_cast<const std::byte*>(values.data());
  submission.output = reinterpret_cast<std::byte*>(values.data());
  return submission;
}

/// By negotiated submission with several fused tensors, and by in-order submission.
void check_allreduces(Runtime& runtime, const Case& its, int rank) {
  const Call& call = its.call;
  std::vector<Halves> tensors;
  std::vector<std::shared_ptr<Work>> works;
  for (const std::size_t count : kCounts) tensors.push_back(call.inputs(count, rank));
  for (Halves& tensor : tensors)
    works.push_back(submit(
        runtime, submission_of(call, fmt::format("{}.{}", call.name(), tensor.size()), tensor)));
  for (const auto& work : works) ASSERT_DONE(work);
  for (const Halves& tensor : tensors)
    ASSERT_NO_FATAL_FAILURE(expect_results(its, tensor, tensor.size(), 0));

  for (const std::size_t count : kCounts) {
    Halves values = call.inputs(count, rank);
    const auto work = runtime.submit_ordered(submission_of(call, "", values));
    ASSERT_TRUE(work.ok()) << work.error().message;
    ASSERT_DONE(*work);
    ASSERT_NO_FATAL_FAILURE(expect_results(its, values, count, 0));
    if (call.prescale != 1 || call.postscale != 1) continue;
    values = call.inputs(count, rank);
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    const Status status =
        runtime.allreduce_ordered(data, data, static_cast<std::int64_t>(count), call.type, call.op);
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_NO_FATAL_FAILURE(expect_results(its, values, count, 0));
  }
}

void check_reduce_scatters(Runtime& runtime, const Case& its, int rank, int size) {
  const Call& call = its.call;
  for (const std::size_t part : kParts) {
    const std::size_t count = part * static_cast<std::size_t>(size);
    Halves input = call.inputs(count, rank), output;
    Submission submission =
        submission_of(call, fmt::format("part.{}.{}", call.name(), part), input);
    submission.signature.kind = OperationKind::kReduceScatter;
    submission.output = nullptr;
    submission.allocate = [&](const Shape& shape) {
      output.resize(static_cast<std::size_t>(element_count(shape)));
      return reinterpret_cast<std::byte*>(output.data());
    };
    ASSERT_DONE(submit(runtime, std::move(submission)));
    ASSERT_NO_FATAL_FAILURE(
        expect_results(its, output, part, part * static_cast<std::size_t>(rank)));
  }
}

void check_world(int size, LocalWorldOptions options) {
  options.variables["KOLO_CHUNK_SIZE"] = "4K";
  std::vector<Case> cases;
  for (const Call& call : calls()) cases.emplace_back(call, size);
  run_local_world(
      size,
      [&](int rank, Runtime& runtime) {
        for (const Case& its : cases) {
          ASSERT_NO_FATAL_FAILURE(check_allreduces(runtime, its, rank));
          ASSERT_NO_FATAL_FAILURE(check_reduce_scatters(runtime, its, rank, size));
        }
      },
      options);
}

/// Parameter: KOLO_ALGORITHM.
class HalfSums : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, HalfSums,
                         testing::Values("auto", "ring", "bidirectional_ring", "recursive_doubling",
                                         "halving_doubling", "double_tree", "hierarchical"));

TEST_P(HalfSums, AreTheSameByMessagesOfOneToEightRanks) {
  for (int size = 1; size <= 8; ++size) {
    SCOPED_TRACE(testing::Message() << size << " ranks");
    LocalWorldOptions options;
    options.variables = {{"KOLO_ALGORITHM", GetParam()}};
    for (int rank = 0; rank < size; ++rank) options.hosts.push_back(rank);
    check_world(size, options);
  }
}

TEST_P(HalfSums, AreTheSameOnHostsOfSeveralRanks) {
  using Hosts = std::vector<int>;
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 0, 0, 1}, Hosts{0, 1, 1, 2, 0, 1}})
    for (const char* const windows : {"0", "16M"}) {
      SCOPED_TRACE(testing::Message()
                   << testing::PrintToString(hosts) << ", windows of " << windows);
      LocalWorldOptions options;
      options.variables = {{"KOLO_ALGORITHM", GetParam()}, {"KOLO_SHARED_MEMORY", windows}};
      options.hosts = hosts;
      check_world(static_cast<int>(hosts.size()), options);
    }
}

TEST(HalfSumsOfAHost, AreTheSameInWindowsOfOneToEightRanks) {
  for (int size = 1; size <= 8; ++size)
    for (const char* const windows : {"0", "16M"}) {
      SCOPED_TRACE(testing::Message() << size << " ranks, windows of " << windows);
      LocalWorldOptions options;
      options.variables = {{"KOLO_SHARED_MEMORY", windows}};
      check_world(size, options);
    }
}

}  // namespace
}  // namespace kolo::test::half_sums_test
