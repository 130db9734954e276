// The host's vector kernels, one function an element type; each picks the best instruction set of
// this processor when it is called. Called by host_device.cc alone. Stateless; any thread.
//
// Memory is aligned to the element, no more. `destination` may be one of the sources.
#pragma once

#include <cstddef>
#include <span>

namespace kolo {

using Sources = std::span<const std::byte* const>;

/// destination = factor × sum of one source or more; a factor of one is not multiplied in.
void reduce_float32(std::byte* destination, Sources sources, std::size_t count, float factor);
void reduce_float64(std::byte* destination, Sources sources, std::size_t count, double factor);
/// Sums and scales in float32 and rounds once, to nearest even; a NaN stays one.
void reduce_bfloat16(std::byte* destination, Sources sources, std::size_t count, float factor);
/// The sum wraps around.
void sum_int64(std::byte* destination, Sources sources, std::size_t count);

}  // namespace kolo
