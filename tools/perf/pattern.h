// What ranks write into their memory, and what must come out. Values are exact and differ from
// element to element, so that a wrong, missing, doubled or displaced element is found. Pure
// functions; the sweep calls them between the timed operations, on the thread that measures.
#pragma once

#include "tools/perf/problem.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo::perf {

/// Number of elements after which a part's values repeat. It is prime, so that no shift by a power
/// of two stays unseen.
inline constexpr std::int64_t kPeriod = 251;

/// `count` elements; their bytes repeat those of `period`.
struct Part {
  std::int64_t count = 0;
  std::vector<std::byte> period;
};
/// The parts of a buffer, in order.
using Content = std::vector<Part>;

/// A rank's input. Reductions get small whole numbers, so that every type's result is exact
/// (bfloat16: up to 50 ranks, float16: up to 400; integers wrap around as they should).
/// With two or more ranks, no rank's input is the result. Sums, averages and products differ from
/// each input at every element. For min, max, bool and Adasum, one rank decides each element, and
/// the deciding rank changes from element to element. The numbers of an average are around its
/// result.
/// Adasum's result mostly depends on the order and is rounded. So ranks form pairs: one has twice
/// the vector of the other, which combine to one and a half of the smaller, and pairs have no
/// element in common. With an odd number of ranks, no two ranks have an element in common, and a
/// plain sum would look the same.
Content input_of(const Problem& problem, int rank, int ranks);
/// This rank's output after the operation; empty where the rank gets nothing.
Content expected_of(const Problem& problem, int rank, int ranks);

void write(const Content& content, DataType type, std::byte* memory);
/// Number of elements of `memory` that differ. A float32 or float64 average may differ in its last
/// bit, because a multiplication by 1/n is as good as a division.
std::int64_t count_wrong(const Problem& problem, const Content& expected, const std::byte* memory);

}  // namespace kolo::perf
