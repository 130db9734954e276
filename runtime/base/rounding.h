// Division and rounding of whole numbers that are not negative.
#pragma once

#include <concepts>

namespace kolo {

/// a / b, rounded up.
template <std::integral A, std::integral B>
constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

/// The smallest multiple of `granule` that is at least n.
template <std::integral N, std::integral G>
constexpr auto round_up(N n, G granule) {
  return ceil_div(n, granule) * granule;
}

/// The largest multiple of `granule` that is at most n.
template <std::integral N, std::integral G>
constexpr auto round_down(N n, G granule) {
  return n / granule * granule;
}

}  // namespace kolo
