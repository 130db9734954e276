// Cuts a range of elements into near-equal parts with borders on a granule. So no part is tiny, and
// vector loads stay within cache lines. Used by the algorithms in this folder.
#pragma once

#include "runtime/base/rounding.h"

#include <algorithm>
#include <cstdint>

namespace kolo {

/// Granule for borders on cache lines: a multiple of a line for every element type.
inline constexpr std::uint64_t kCacheLineElements = 64;

/// The most whole cache lines in `elements`; less than one stays as it is.
constexpr std::uint64_t whole_lines(std::uint64_t elements) {
  return elements < kCacheLineElements ? elements : round_down(elements, kCacheLineElements);
}

struct Interval {
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
};

/// Part `index` of `parts` of [begin, begin + length). Lengths differ by at most one granule,
/// except that the end may cut off the last granule. Requires length / granule × parts < 2⁶⁴.
constexpr Interval split(Interval whole, std::uint64_t parts, std::uint64_t index,
                         std::uint64_t granule) {
  const std::uint64_t granules = ceil_div(whole.length, granule);
  const auto border = [&](std::uint64_t i) {
    return std::min(granules * i / parts * granule, whole.length);
  };
  return {whole.begin + border(index), border(index + 1) - border(index)};
}

}  // namespace kolo
