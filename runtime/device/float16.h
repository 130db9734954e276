// IEEE binary16. Conversions of single elements; host_floating.cc has the same conversions for
// vectors. Pure; any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace kolo {

constexpr float float_of_float16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1F;
  const std::uint32_t fraction = bits & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;  // zero or subnormal: exact
  return sign != 0 ? -magnitude : magnitude;
}

/// Rounds to nearest, ties to even. Values beyond the largest become infinite. A NaN becomes quiet.
constexpr std::uint16_t float16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<std::uint16_t>(sign | 0x7E00);
  if (magnitude >= 0x477FF000) return static_cast<std::uint16_t>(sign | 0x7C00);  // ≥ 65520
  if (magnitude >= 0x38800000) {                                                  // normal
    const std::uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1) - 0x38000000;
    return static_cast<std::uint16_t>(sign | rounded >> 13);
  }
  // Subnormal: adding 0.5 makes the addition itself round at the right place.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000));
}

}  // namespace kolo
