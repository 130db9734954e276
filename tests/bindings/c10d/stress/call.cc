#include "tests/bindings/c10d/stress/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace kolo::test {
namespace {

constexpr torch::ScalarType kTypes[] = {
    torch::kFloat32, torch::kFloat64, torch::kBFloat16,     torch::kInt64,
    torch::kFloat16, torch::kInt32,   torch::kInt16,        torch::kInt8,
    torch::kUInt8,   torch::kBool,    torch::kComplexFloat, torch::kComplexDouble};
/// Prime, so that data that is off by a part does not look right.
constexpr std::int64_t kPeriod = 251;

constexpr const char* kNames[] = {"broadcast",
                                  "allreduce",
                                  "allreduce_coalesced",
                                  "reduce",
                                  "allgather",
                                  "_allgather_base",
                                  "allgather_into_tensor_coalesced",
                                  "gather",
                                  "gather_single",
                                  "scatter",
                                  "reduce_scatter",
                                  "_reduce_scatter_base",
                                  "reduce_scatter_tensor_coalesced",
                                  "alltoall_base",
                                  "alltoall",
                                  "message",
                                  "barrier",
                                  "kolo, ordered",
                                  "kolo, named",
                                  "refused"};
static_assert(std::size(kNames) == kKindCount);

bool is_reduction(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kAllreduceCoalesced || kind == Kind::kReduce ||
         kind == Kind::kReduceScatter || kind == Kind::kReduceScatterBase ||
         kind == Kind::kReduceScatterCoalesced;
}
bool is_coalesced(Kind kind) {
  return kind == Kind::kAllreduceCoalesced || kind == Kind::kAllgatherCoalesced ||
         kind == Kind::kReduceScatterCoalesced;
}

bool is_defined(Op op, torch::ScalarType type) {
  const bool is_fraction = torch::isFloatingType(type) || torch::isComplexType(type);
  switch (op) {
    case Op::SUM:
    case Op::PRODUCT:
      return true;
    case Op::AVG:
      return type != torch::kBool;
    case Op::MIN:
    case Op::MAX:
      return !torch::isComplexType(type);
    case Op::BAND:
    case Op::BOR:
    case Op::BXOR:
      return type == torch::kBool;  // integers: process_group_test.cc
    case Op::PREMUL_SUM:
      return is_fraction;
    case Op::UNUSED:
      break;
  }
  return false;
}

Sizes draw_sizes(Dice& dice) {
  constexpr std::int64_t kExtents[] = {1, 2, 3, 4, 5, 8};
  Sizes sizes;
  for (auto dims = dice.below(5); dims > 0; --dims) sizes.push_back(kExtents[dice.below(6)]);
  if (sizes.empty()) return sizes;
  const auto any = static_cast<std::size_t>(dice.below(std::ssize(sizes)));
  if (dice.one_in(12)) sizes[any] = 0;
  if (dice.one_in(6)) sizes[any] *= 97;
  if (dice.one_in(25)) sizes.front() *= 1 + dice.below(200);
  // Tensors that take longer to verify than to send reveal nothing more.
  while (c10::multiply_integers(sizes) > 200'000) sizes.pop_back();
  return sizes;
}

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double small(const Call& call, torch::ScalarType type, std::uint64_t bits) {
  const bool is_signed = type != torch::kUInt8 && type != torch::kBool;
  if (type == torch::kBool) return static_cast<double>(bits % 2);
  if (call.op == Op::PRODUCT) {
    const double factors[] = {1, 2, -1};
    return factors[bits % (is_signed ? 3 : 2)];
  }
  return static_cast<double>(bits % 8) - (is_signed ? 3 : 0);
}

}  // namespace

Part Call::part(int from, int to_rank) const {
  Part part = parts.front();
  if (rows.empty()) return part;
  const Sizes& of = rows[static_cast<std::size_t>(from)];
  part.sizes.insert(part.sizes.begin(),
                    of.size() == 1 ? of[0] : of[static_cast<std::size_t>(to_rank)]);
  return part;
}

std::string Call::text() const {
  std::string text =
      fmt::format("{} (op {}, root {}, to {}, tag {}, way {})", kNames[static_cast<int>(kind)],
                  static_cast<int>(op), root, to, tag, way);
  for (const Part& one : parts)
    text += fmt::format(" {}[{}]", torch::toString(one.type), fmt::join(one.sizes, ","));
  for (const Sizes& of : rows) text += fmt::format(" ({})", fmt::join(of, " "));
  return text;
}

Call draw_call(Dice& dice, int size) {
  Call call;
  call.kind = static_cast<Kind>(dice.below(kKindCount));
  call.salt = dice.salt();
  call.root = static_cast<int>(dice.below(size));
  call.to = static_cast<int>(dice.below(size));
  call.tag = static_cast<int>(dice.below(3));
  call.way = static_cast<int>(dice.below(1 << 20));
  call.parts.resize(is_coalesced(call.kind) ? static_cast<std::size_t>(1 + dice.below(4)) : 1);
  for (Part& part : call.parts)
    part = {.type = kTypes[dice.below(std::size(kTypes))], .sizes = draw_sizes(dice)};
  if (is_reduction(call.kind)) {
    constexpr Op kOps[] = {Op::SUM,  Op::AVG, Op::PRODUCT, Op::MIN,       Op::MAX,
                           Op::BAND, Op::BOR, Op::BXOR,    Op::PREMUL_SUM};
    const auto works = [&](Op op) {
      return std::all_of(call.parts.begin(), call.parts.end(),
                         [&](const Part& part) { return is_defined(op, part.type); });
    };
    do call.op = kOps[dice.below(std::size(kOps))];
    while (!works(call.op));
  }
  const bool is_square = call.kind == Kind::kAlltoall || call.kind == Kind::kAlltoallBase;
  const bool has_rows = call.kind == Kind::kAllgather || call.kind == Kind::kGather ||
                        call.kind == Kind::kScatter || is_square;
  if (!has_rows) return call;
  // Half of the splits are even.
  const bool even = dice.one_in(2);
  const std::int64_t rows = dice.below(5);
  for (int r = 0; r < size; ++r) {
    Sizes& of = call.rows.emplace_back();
    for (int d = 0; d < (is_square ? size : 1); ++d) of.push_back(even ? rows : dice.below(5));
  }
  return call;
}

double factor_of(const Call& call, int rank) {
  constexpr double kFactors[] = {2, 1, -1, 3, 0};
  return kFactors[(call.salt + static_cast<std::uint64_t>(rank)) % std::size(kFactors)];
}

torch::Tensor values_of(const Call& call, std::size_t part, int rank, std::int64_t count) {
  const torch::ScalarType type = call.parts[part].type;
  // Averages of whole numbers: take sums that the number of ranks divides, where fractions would be
  // lost.
  const bool is_whole = call.op == Op::AVG && !torch::isIntegralType(type, true);
  const double scale = is_whole ? 12 : 1;
  const bool has_imaginary = torch::isComplexType(type) && call.op != Op::PRODUCT;
  std::vector<double> real;
  std::vector<double> imaginary;
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    const std::uint64_t bits =
        mixed(call.salt + 0x9e3779b97f4a7c15 * ((part * 64 + static_cast<std::uint64_t>(rank)) *
                                                    static_cast<std::uint64_t>(kPeriod) +
                                                static_cast<std::uint64_t>(i) + 1));
    real.push_back(scale * small(call, type, bits));
    imaginary.push_back(has_imaginary ? scale * small(call, type, bits >> 20) : 0);
  }
  auto period = torch::tensor(real, torch::kFloat64);
  if (torch::isComplexType(type))
    period = torch::complex(period, torch::tensor(imaginary, torch::kFloat64));
  return period.repeat({(count + kPeriod - 1) / kPeriod}).narrow(0, 0, count);
}

torch::Tensor reduced_values(const Call& call, std::size_t part, int size, std::int64_t count) {
  const torch::ScalarType type = call.parts[part].type;
  torch::Tensor result;
  for (int rank = 0; rank < size; ++rank) {
    torch::Tensor next = values_of(call, part, rank, count);
    if (call.op == Op::PREMUL_SUM) next = next * factor_of(call, rank);
    if (rank == 0) {
      result = next;
    } else if (call.op == Op::PRODUCT || call.op == Op::BAND) {
      result = result * next;
    } else if (call.op == Op::MIN) {
      result = torch::minimum(result, next);
    } else if (call.op == Op::MAX || call.op == Op::BOR) {
      result = torch::maximum(result, next);
    } else if (call.op == Op::BXOR) {
      result = torch::logical_xor(result, next).to(next.scalar_type());
    } else {
      result = result + next;
    }
  }
  if (call.op == Op::AVG) {
    result = result / size;
    if (torch::isIntegralType(type, true)) result = result.trunc();
  }
  return type == torch::kBool ? result.ne(0).to(torch::kFloat64) : result;
}

}  // namespace kolo::test
