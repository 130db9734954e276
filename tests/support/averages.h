// All-reduces of random values, checked against sums made one rank at a time. For tests of the
// runtime on whatever path their options lead to.
#pragma once

#include "tests/support/local_world.h"

#include <cstddef>
#include <span>
#include <vector>

namespace kolo::test {

using Values = std::vector<float>;

/// Between -1 and 1, the same for the same arguments.
Values random_values(std::size_t count, int rank, std::size_t tensor);
/// The sum of those over `size` ranks.
Values random_sums(std::size_t count, int size, std::size_t tensor);
/// Fails fatally, with the first that is further off than 1e-5.
void expect_near(std::span<const float> values, std::span<const float> expected);

/// Averages tensors of these counts, all under way at once and scaled by 2, over `size` ranks: the
/// results are right, and equal in their bits on all ranks.
void check_averages(int size, std::span<const std::size_t> counts,
                    const LocalWorldOptions& options);

}  // namespace kolo::test
