#include "tools/perf/pattern.h"

#include "runtime/device/element.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

namespace kolo::perf {
namespace {

/// Scrambled numbers below kPeriod.
int scrambled(std::int64_t element) {
  return static_cast<int>((element % kPeriod) * (element % kPeriod + 89) % kPeriod);
}

/// What a rank contributes to one element of a reduction. Where a single rank decides the result,
/// the deciding rank changes from element to element.
int contribution(const Problem& problem, std::int64_t element, int rank, int ranks) {
  const int value = scrambled(element) % 5;
  const bool decides = element % kPeriod % ranks == rank;
  if (problem.type == DataType::kBool) {
    // The value that settles the result is true for an OR, false for an AND. One rank has it; at
    // some elements no rank or every rank.
    const bool settles = value == 2 || (value != 1 && decides);
    const bool is_and = problem.op == ReduceOp::kMin || problem.op == ReduceOp::kProduct;
    return settles != is_and ? 1 : 0;
  }
  switch (problem.op) {
    case ReduceOp::kSum:
      return value + (rank + 1) % 3;
    case ReduceOp::kMin:
      return decides ? value : value + 1 + rank % 3;
    case ReduceOp::kMax:
      return decides ? value + 3 : value + rank % 3;
    case ReduceOp::kProduct:
      if (rank < 2) return rank == 0 ? 2 + value % 2 : 2;
      return (value + rank) % 5 == 3 ? 2 : 1;
    case ReduceOp::kAverage:
      // The average is value + 1: pairs of ranks have one more and one less; with an odd number of
      // ranks, the first three have 2 more, 1 less and 1 less.
      if (ranks % 2 == 1 && rank < 3) return rank == 0 ? value + 3 : value;
      return (ranks - rank) % 2 == 0 ? value + 2 : value;
    case ReduceOp::kAdasum:
      if (ranks % 2 == 1) return decides ? value + 1 : 0;
      return element % kPeriod % (ranks / 2) == rank / 2 ? 2 * (value + 1) * (1 + rank % 2) : 0;
  }
  return 0;
}

/// `value` as an integer of that type after wrap-around.
double wrapped(DataType type, double value) {
  if (!is_integer(type) || type == DataType::kInt64) return value;
  const double range = std::ldexp(1.0, 8 * static_cast<int>(size_of(type)));
  const double positive = value - range * std::floor(value / range);
  return is_signed(type) && positive >= range / 2 ? positive - range : positive;
}

double reduced(const Problem& problem, std::int64_t element, int ranks) {
  double result = contribution(problem, element, 0, ranks);
  const bool is_bool = problem.type == DataType::kBool;
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = contribution(problem, element, rank, ranks);
    switch (problem.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
      case ReduceOp::kAdasum:
        result = is_bool ? std::max(result, next) : wrapped(problem.type, result + next);
        break;
      case ReduceOp::kMin:
        result = std::min(result, next);
        break;
      case ReduceOp::kMax:
        result = std::max(result, next);
        break;
      case ReduceOp::kProduct:
        result = wrapped(problem.type, result * next);
        break;
    }
  }
  if (problem.op == ReduceOp::kAdasum && ranks % 2 == 0) return result / 2;  // not thrice, but 1.5
  // Divides its own wrapped sum, so integers that wrap around are averaged as kolo averages them.
  return problem.op == ReduceOp::kAverage ? std::trunc(result / ranks) : result;
}

/// The element that `from` sends to `to`: exact in every type.
double moved(DataType type, std::int64_t element, int from, int to) {
  const int value = (scrambled(element) + 37 * from + 11 * to) % 101;
  return type == DataType::kBool ? value % 2 : value;
}

/// `count` elements: `value(first)`, `value(first + 1)`, …
Part part_of(DataType type, std::int64_t first, std::int64_t count,
             const std::function<double(std::int64_t)>& value) {
  const std::int64_t length = std::min(count, kPeriod);
  Part part{count, std::vector<std::byte>(static_cast<std::size_t>(length) * size_of(type))};
  for (std::int64_t i = 0; i < length; ++i) {
    store_element(type, part.period.data() + static_cast<std::size_t>(i) * size_of(type),
                  value(first + i));
  }
  return part;
}

Content one_part(const Problem& problem, int from, int to) {
  return {part_of(problem.type, 0, problem.count,
                  [&](std::int64_t element) { return moved(problem.type, element, from, to); })};
}

/// One part per rank.
Content part_by_rank(int ranks, const std::function<Content(int)>& part) {
  Content content;
  for (int rank = 0; rank < ranks; ++rank) content.push_back(part(rank).front());
  return content;
}

}  // namespace

Content input_of(const Problem& problem, int rank, int ranks) {
  const std::int64_t count = input_count(problem, rank, ranks);
  if (count == 0) return {};
  switch (problem.collective) {
    case Collective::kAllreduce:
    case Collective::kReducescatter:
      return {part_of(problem.type, 0, count, [&](std::int64_t element) {
        return static_cast<double>(contribution(problem, element, rank, ranks));
      })};
    case Collective::kBroadcast:
    case Collective::kAllgather:
    case Collective::kGather:
      return one_part(problem, rank, 0);
    case Collective::kSendrecv:
      return one_part(problem, rank, (rank + 1) % ranks);
    case Collective::kAlltoall:
    case Collective::kScatter:
      return part_by_rank(ranks, [&](int to) { return one_part(problem, rank, to); });
    case Collective::kBarrier:
      return {};
  }
  return {};
}

Content expected_of(const Problem& problem, int rank, int ranks) {
  const std::int64_t count = output_count(problem, rank, ranks);
  if (count == 0) return {};
  switch (problem.collective) {
    case Collective::kAllreduce:
    case Collective::kReducescatter: {
      const std::int64_t first =
          problem.collective == Collective::kReducescatter ? rank * problem.count : 0;
      return {part_of(problem.type, first, count,
                      [&](std::int64_t element) { return reduced(problem, element, ranks); })};
    }
    case Collective::kBroadcast:
      return one_part(problem, problem.root, 0);
    case Collective::kSendrecv:
      return one_part(problem, (rank + ranks - 1) % ranks, rank);
    case Collective::kScatter:
      return one_part(problem, problem.root, rank);
    case Collective::kAllgather:
    case Collective::kGather:
      return part_by_rank(ranks, [&](int from) { return one_part(problem, from, 0); });
    case Collective::kAlltoall:
      return part_by_rank(ranks, [&](int from) { return one_part(problem, from, rank); });
    case Collective::kBarrier:
      return {};
  }
  return {};
}

void write(const Content& content, DataType type, std::byte* memory) {
  for (const Part& part : content) {
    const std::size_t bytes = static_cast<std::size_t>(part.count) * size_of(type);
    for (std::size_t at = 0; at < bytes; at += part.period.size()) {
      std::memcpy(memory + at, part.period.data(), std::min(part.period.size(), bytes - at));
    }
    memory += bytes;
  }
}

std::int64_t count_wrong(const Problem& problem, const Content& expected, const std::byte* memory) {
  const DataType type = problem.type;
  const std::size_t width = size_of(type);
  const bool rounds = reduces(problem.collective) && problem.op == ReduceOp::kAverage &&
                      !is_integer(type) && type != DataType::kFloat16 &&
                      type != DataType::kBFloat16;
  const double tolerance = type == DataType::kFloat64 || type == DataType::kComplex128
                               ? std::ldexp(1.0, -52)
                               : std::ldexp(1.0, -23);
  const auto is_wrong = [&](const std::byte* value, const std::byte* right) {
    if (std::memcmp(value, right, width) == 0) return false;
    if (is_complex(type) && std::memcmp(value + width / 2, right + width / 2, width / 2) != 0)
      return true;
    const double wanted = load_element(type, right);
    return !rounds || !(std::abs(load_element(type, value) - wanted) <= tolerance * wanted);
  };
  std::int64_t wrong = 0;
  for (const Part& part : expected) {
    const std::size_t bytes = static_cast<std::size_t>(part.count) * width;
    for (std::size_t at = 0; at < bytes; at += part.period.size()) {
      const std::size_t length = std::min(part.period.size(), bytes - at);
      if (std::memcmp(memory + at, part.period.data(), length) == 0) continue;
      for (std::size_t i = 0; i < length; i += width) {
        wrong += is_wrong(memory + at + i, part.period.data() + i) ? 1 : 0;
      }
    }
    memory += bytes;
  }
  return wrong;
}

}  // namespace kolo::perf
