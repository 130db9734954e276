// The element types, reduce operations and scale factors that every layer shares. Plain values.
#pragma once

#include <kolo/export.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

enum class DataType : std::uint8_t {
  kFloat32,
  kFloat64,
  kBFloat16,
  kInt64,
  kFloat16,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,  ///< one byte, 0 or 1
  kComplex64,
  kComplex128,
};
inline constexpr int kDataTypeCount = 12;

constexpr bool is_floating(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat64 || type == DataType::kFloat16 ||
         type == DataType::kBFloat16;
}
constexpr bool is_complex(DataType type) {
  return type == DataType::kComplex64 || type == DataType::kComplex128;
}

/// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUInt8:
    case DataType::kBool:
      return 1;
    case DataType::kBFloat16:
    case DataType::kFloat16:
    case DataType::kInt16:
      return 2;
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kFloat64:
    case DataType::kInt64:
    case DataType::kComplex64:
      return 8;
    case DataType::kComplex128:
      return 16;
  }
  return 0;
}
/// "float32", "bfloat16", "uint8", "complex64", …
KOLO_API std::string_view to_string(DataType type);

/// How the ranks' elements are combined. Integers wrap around. On bool, sum and maximum are "or",
/// product and minimum are "and". docs/architecture.md lists the exceptions to the rounding rule of
/// kSum.
enum class ReduceOp : std::uint8_t {
  kSum,  ///< half types (also products): summed and scaled in float32, rounded once, on every path
  /// Sum / number of ranks that have not joined; integers truncate toward zero; not on bool.
  kAverage,
  kMin,  ///< a NaN in any input gives NaN; not on complex
  kMax,  ///< a NaN in any input gives NaN; not on complex
  kProduct,
  /// Adasum combines ranks in pairs, then pairs of pairs, and so on. Components that gradients have
  /// in common are averaged; the others are added. Works on one whole tensor at a time, which is
  /// never fused. Floating types only. (Maleki et al., "Scaling distributed training with adaptive
  /// summation", MLSys 2021.)
  kAdasum,
};
inline constexpr int kReduceOpCount = 6;
/// "sum", "average", "min", "max", "product", "adasum".
KOLO_API std::string_view to_string(ReduceOp op);
/// Whether `op` is defined on `type`.
KOLO_API bool is_supported(DataType type, ReduceOp op);

/// Extents of a tensor, outermost first; empty for a scalar (one element).
using Shape = std::vector<std::int64_t>;
KOLO_API std::int64_t element_count(const Shape& shape);
/// "[64, 1, 3, 3]".
KOLO_API std::string to_string(const Shape& shape);

}  // namespace kolo
