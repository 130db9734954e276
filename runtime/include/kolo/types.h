// The element types, reduce operations and scale factors that every layer shares. Plain values.
#pragma once

#include <kolo/export.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

enum class DataType : std::uint8_t { kFloat32, kFloat64, kBFloat16, kInt64 };
inline constexpr int kDataTypeCount = 4;

/// Bytes of one element.
KOLO_API std::size_t size_of(DataType type);
/// "float32", "float64", "bfloat16", "int64".
KOLO_API std::string_view to_string(DataType type);

/// kAverage divides the sum by the number of ranks; an int64 average truncates toward zero.
enum class ReduceOp : std::uint8_t { kSum, kAverage };
KOLO_API std::string_view to_string(ReduceOp op);

/// Extents of a tensor, outermost first; empty for a scalar (one element).
using Shape = std::vector<std::int64_t>;
KOLO_API std::int64_t element_count(const Shape& shape);
/// "[64, 1, 3, 3]".
KOLO_API std::string to_string(const Shape& shape);

}  // namespace kolo
