// The kernels of runtime/device/cuda without a device: every block and thread is simulated on this
// thread, one after the other, from the same headers that nvcc compiles.
#pragma once

#include "runtime/device/accelerator.h"

#include <cstddef>

namespace kolo::test {

/// Does what a GPU with `processors` would do; returns the number of launches, or the plan's error.
Result<int> play_combine(const Combination& what, const PieceList& pieces,
                         std::uint32_t processors = 4);
void play_adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
                 std::size_t count);

}  // namespace kolo::test
