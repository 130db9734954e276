#include <kolo/types.h>

#include <fmt/ranges.h>

#include <array>

namespace kolo {
namespace {

// By value.
constexpr auto kTypes =
    std::to_array<std::string_view>({"float32", "float64", "bfloat16", "int64", "float16", "int32",
                                     "int16", "int8", "uint8", "bool", "complex64", "complex128"});
static_assert(kTypes.size() == kDataTypeCount);
constexpr auto kOps =
    std::to_array<std::string_view>({"sum", "average", "min", "max", "product", "adasum"});
static_assert(kOps.size() == kReduceOpCount);

}  // namespace

std::string_view to_string(DataType type) {
  const auto value = static_cast<std::size_t>(type);
  return value < kTypes.size() ? kTypes[value] : "unknown type";
}

std::string_view to_string(ReduceOp op) {
  const auto value = static_cast<std::size_t>(op);
  return value < kOps.size() ? kOps[value] : "unknown operation";
}

bool is_supported(DataType type, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return true;
    case ReduceOp::kAverage:
      return type != DataType::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return !is_complex(type);
    case ReduceOp::kAdasum:
      return is_floating(type);
  }
  return false;
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace kolo
