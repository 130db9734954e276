// All-reduces of random values, checked against sums made one rank at a time. For tests of the
// runtime on any path that their options select.
#pragma once

#include "tests/support/local_world.h"

#include <cstddef>
#include <span>
#include <vector>

namespace kolo::test {

using Values = std::vector<float>;

/// Between -1 and 1, the same for the same arguments.
Values random_values(std::size_t count, int rank, std::size_t tensor);
/// The sum of random_values() over `size` ranks.
Values random_sums(std::size_t count, int size, std::size_t tensor);
/// Fails fatally at the first value that is off by more than 1e-5.
void expect_near(std::span<const float> values, std::span<const float> expected);

/// Averages tensors of these counts over `size` ranks, all in flight at once and scaled by 2.
/// Checks that the results are right, with equal bits on all ranks.
void check_averages(int size, std::span<const std::size_t> counts,
                    const LocalWorldOptions& options);

}  // namespace kolo::test
