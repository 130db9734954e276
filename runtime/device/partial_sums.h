// The type of partial sums of half types. They are float32, and the result is scaled and rounded
// once, so that no path rounds twice. Pure; used wherever an operation is bound, priced or run.
#pragma once

#include "runtime/device/device.h"

#include <kolo/types.h>

#include <cstdint>

namespace kolo {

constexpr bool is_half(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBFloat16;
}

/// Whether combining the inputs one after the other may round: then partial results need more bits.
constexpr bool rounds(ReduceOp op) {
  return op == ReduceOp::kSum || op == ReduceOp::kAverage || op == ReduceOp::kProduct;
}

/// The type of a result that combines only some ranks' inputs. Minimum and maximum of half types
/// round nothing, and Adasum rounds each of its combinations.
constexpr DataType partial_type(DataType type, ReduceOp op) {
  return is_half(type) && rounds(op) ? DataType::kFloat32 : type;
}

/// The scales of inputs (pre) and of results (post).
struct Scales {
  Scale pre;
  Scale post;
};

/// A half type's sum gets one factor, applied in float32 after the sum, because a prescaled input
/// would be rounded. All other operations get both scales, as the caller gave them.
constexpr Scales scales_of(DataType type, ReduceOp op, double prescale, double postscale,
                           std::int64_t divisor) {
  const bool is_sum = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  if (is_half(type) && is_sum) return {{}, {prescale * postscale, divisor}};
  return {{prescale}, {postscale, divisor}};
}

}  // namespace kolo
