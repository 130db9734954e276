// Memory of ranks, each with its own mixture of arena and private memory, and the values in it. For
// tests of operations whose peers read and write this memory in place. What loops over elements is
// in arena_memory.cc, which is optimised.
#pragma once

#include "tests/support/local_world.h"

#include <cstddef>
#include <iterator>
#include <memory>
#include <span>
#include <string>

namespace kolo::test {

/// Which of a rank's buffers are in the arena.
struct Shared {
  bool input = false;
  bool output = false;
};
inline constexpr Shared kAllShared = {true, true};
inline constexpr Shared kMixtures[] = {{}, {.input = true}, {.output = true}, kAllShared};

/// Rank r's mixture in round `round`; in the last round all ranks have all buffers in the arena.
inline constexpr std::size_t kRounds = std::size(kMixtures) + 1;
inline Shared mixture(std::size_t rank, std::size_t round) {
  return round + 1 == kRounds ? kAllShared : kMixtures[(rank + round) % std::size(kMixtures)];
}

/// Whole numbers, so that sums are exact; different for each element and rank.
inline float element(std::size_t rank, std::size_t place) {
  return static_cast<float>((place * 31 + rank * 7) % 1009);
}

/// Sets `memory` to element(rank, first), element(rank, first + 1) …
void set_elements(std::span<float> memory, std::size_t rank, std::size_t first);
/// Adds them to `memory`.
void add_elements(std::span<float> memory, std::size_t rank, std::size_t first);
/// The first element of `actual` that is not as expected, in words; empty if there is none.
std::string difference(std::span<const float> actual, std::span<const float> expected);

/// From the arena if `shared` and there are windows, else private.
inline std::shared_ptr<float> floats(Runtime& runtime, std::size_t count, bool shared) {
  if (shared && count > 0)
    return std::reinterpret_pointer_cast<float>(*runtime.allocate(count * sizeof(float)));
  return {new float[count], std::default_delete<float[]>()};
}

}  // namespace kolo::test
