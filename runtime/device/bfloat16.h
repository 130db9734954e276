// bfloat16 is the upper half of a float32. Conversions of single elements; host_floating.cc has the
// same conversions for vectors. Pure; any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace kolo {

constexpr float float_of_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// Rounds to nearest, ties to even. A NaN becomes quiet: cutting off its payload could leave an
/// infinity.
constexpr std::uint16_t bfloat16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace kolo
