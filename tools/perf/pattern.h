// What ranks put into their memory, and what must come out: exact, and different at each place, so
// that a wrong, missing, doubled or displaced element is found. Pure functions; the sweep calls
// them between the timed operations, on the thread that measures.
#pragma once

#include "tools/perf/problem.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo::perf {

/// Elements after which a part's values repeat. A prime: no shift by a power of two goes unseen.
inline constexpr std::int64_t kPeriod = 251;

/// `count` elements, whose bytes are those of `period` over and over.
struct Part {
  std::int64_t count = 0;
  std::vector<std::byte> period;
};
/// The parts of a buffer, one after the other.
using Content = std::vector<Part>;

/// Before the operation. Reductions get small whole numbers, so that every type's result is exact
/// (bfloat16: up to 50 ranks, float16: up to 400; integers wrap around as they should). Of two and
/// more ranks no one's input is the result: sums, averages and products differ from each at every
/// place; of min, max, bool and Adasum, whose result at a single place is somebody's, the rank that
/// decides changes from place to place, so it takes two. An average is of numbers around its
/// result. Adasum, whose results mostly depend on the order and are rounded, gets pairs of ranks of
/// which one has twice the vector of the other, which combine to one and a half of it, and pairs
/// have nothing in common. Of an odd number no two ranks have, and a plain sum is not told from it.
Content input_of(const Problem& problem, int rank, int ranks);
/// After it, on this rank; empty where it gets nothing.
Content expected_of(const Problem& problem, int rank, int ranks);

void write(const Content& content, DataType type, std::byte* memory);
/// Elements of `memory` that differ. A float32 or float64 average may differ in its last bit, since
/// a multiplication by 1/n is as good as a division.
std::int64_t count_wrong(const Problem& problem, const Content& expected, const std::byte* memory);

}  // namespace kolo::perf
