// Memory of ranks of which each has its own mixture in the arena, and what they write there. For
// tests of operations whose peers read and write it where it lies. Header-only.
#pragma once

#include "tests/support/local_world.h"

#include <cstddef>
#include <iterator>
#include <memory>

namespace kolo::test {

/// What a rank has in the arena.
struct Shared {
  bool input = false;
  bool output = false;
};
inline constexpr Shared kAllShared = {true, true};
inline constexpr Shared kMixtures[] = {{}, {.input = true}, {.output = true}, kAllShared};

/// In round `round` of these, and in the last one all ranks have all in the arena.
inline constexpr std::size_t kRounds = std::size(kMixtures) + 1;
inline Shared mixture(std::size_t rank, std::size_t round) {
  return round + 1 == kRounds ? kAllShared : kMixtures[(rank + round) % std::size(kMixtures)];
}

/// Whole numbers, so that sums are exact, different at each place and rank.
inline float element(std::size_t rank, std::size_t place) {
  return static_cast<float>((place * 31 + rank * 7) % 1009);
}

/// Of the arena, or private; without windows private as well.
inline std::shared_ptr<float> floats(Runtime& runtime, std::size_t count, bool shared) {
  if (shared && count > 0)
    return std::reinterpret_pointer_cast<float>(*runtime.allocate(count * sizeof(float)));
  return {new float[count], std::default_delete<float[]>()};
}

}  // namespace kolo::test
