// What sums of half types are made in, so that no path rounds twice: partial sums are float32, and
// the result is scaled and rounded once. Pure; used by whoever binds, prices or runs an operation.
#pragma once

#include "runtime/device/device.h"

#include <kolo/types.h>

#include <cstdint>

namespace kolo {

constexpr bool is_half(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBFloat16;
}

/// Whether adding one input after the other may round: then partial results need more bits.
constexpr bool rounds(ReduceOp op) {
  return op == ReduceOp::kSum || op == ReduceOp::kAverage || op == ReduceOp::kProduct;
}

/// The type of what is combined from some ranks' inputs only. Minimum and maximum of half types
/// round nothing, and Adasum rounds each of its combinations.
constexpr DataType partial_type(DataType type, ReduceOp op) {
  return is_half(type) && rounds(op) ? DataType::kFloat32 : type;
}

/// What inputs and results are multiplied by.
struct Scales {
  Scale pre;
  Scale post;
};

/// A half type's sum takes one factor, in float32 and after the sum: a prescaled input would be
/// rounded. All else has both, as the caller gave them.
constexpr Scales scales_of(DataType type, ReduceOp op, double prescale, double postscale,
                           std::int64_t divisor) {
  const bool is_sum = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  if (is_half(type) && is_sum) return {{}, {prescale * postscale, divisor}};
  return {{prescale}, {postscale, divisor}};
}

}  // namespace kolo
