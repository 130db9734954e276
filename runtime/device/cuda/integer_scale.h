// An integer times a factor, divided by a divisor. Bit-identical to the host, which uses a long
// double, a type that no device has. Shared by kernels and tests; pure.
#pragma once

#include "runtime/device/cuda/on_both.h"
#include "runtime/device/device.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace kolo::cuda {

__extension__ using UInt128 = unsigned __int128;

KOLO_ON_BOTH int bit_width(UInt128 value) {
  int width = 0;
  for (; value > 0xFFFFFFFFU; value >>= 32) width += 32;
  for (; value != 0; value >>= 1) ++width;
  return width;
}

template <class T>
KOLO_ON_BOTH bool is_below_zero(T value) {
  if constexpr (std::numeric_limits<T>::is_signed) {
    return value < 0;
  } else {
    return false;
  }
}

/// value × factor, truncated toward zero. Saturates; 0 if the product is a NaN. Before truncation
/// the product is rounded to 64 significant bits, to nearest even, as the host's long double is.
template <class T>
KOLO_ON_BOTH T multiply_integer(T value, double factor) {
  const auto bits = std::bit_cast<std::uint64_t>(factor);
  const auto biased = static_cast<int>(bits >> 52 & 0x7FF);
  const std::uint64_t fraction = bits & 0xFFFFFFFFFFFFFULL;
  const bool is_negative = is_below_zero(value) != (bits >> 63 != 0);
  constexpr T kSmallest = std::numeric_limits<T>::min();
  constexpr T kLargest = std::numeric_limits<T>::max();
  if (value == 0) return 0;
  if (biased == 0x7FF) return fraction != 0 ? T{0} : is_negative ? kSmallest : kLargest;

  const std::uint64_t mantissa = biased != 0 ? fraction | 1ULL << 52 : fraction;
  int exponent = (biased != 0 ? biased : 1) - 1075;
  const auto wide = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  UInt128 product = static_cast<UInt128>(mantissa) * (is_below_zero(value) ? 0 - wide : wide);
  const int excess = bit_width(product) - 64;
  if (excess > 0) {
    const UInt128 half = static_cast<UInt128>(1) << (excess - 1);
    const UInt128 rest = product & (2 * half - 1);
    product >>= excess;
    exponent += excess;
    if (rest > half || (rest == half && (product & 1) != 0)) ++product;
  }
  const auto largest =
      is_negative ? UInt128{0} - static_cast<UInt128>(kSmallest) : static_cast<UInt128>(kLargest);
  if (product == 0) return 0;
  if (exponent >= 64) return is_negative ? kSmallest : kLargest;
  product = exponent >= 0 ? product << exponent : exponent > -128 ? product >> -exponent : 0;
  if (product > largest) return is_negative ? kSmallest : kLargest;
  const auto magnitude = static_cast<std::uint64_t>(product);
  return static_cast<T>(is_negative ? 0 - magnitude : magnitude);
}

/// As on the host: times the factor, then an integer division toward zero. Divides in 32 bits if
/// the numbers fit, since a device does so several times as fast.
template <class T>
KOLO_ON_BOTH_CALLED T scale_integer(T value, const Scale& scale) {
  if (scale.factor != 1.0) value = multiply_integer(value, scale.factor);
  // The smallest value has no positive counterpart: its division by −1 wraps around, as the sum
  // does.
  if (scale.divisor == -1)
    return static_cast<T>(0 - static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  if constexpr (sizeof(T) <= 4) {
    const auto narrow = static_cast<std::int32_t>(scale.divisor);
    if (narrow == scale.divisor) return static_cast<T>(static_cast<std::int32_t>(value) / narrow);
  }
  return static_cast<T>(static_cast<std::int64_t>(value) / scale.divisor);
}

}  // namespace kolo::cuda
