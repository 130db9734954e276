// The host's vector kernels; each picks the best instruction set of this processor when it is
// called. Called by host_device.cc alone. Stateless; any thread.
//
// Memory is aligned to the element, no more. A destination may be one of the sources; there is one
// of each, or more.
#pragma once

#include "runtime/device/device.h"

#include <kolo/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo {

using Sources = std::span<const std::byte* const>;

struct Destinations {
  std::span<std::byte* const> all;
  Stores stores = Stores::kCached;  ///< kStreaming where the memory is aligned for it
};

enum class Reduction : std::uint8_t { kSum, kMin, kMax, kProduct };

/// float32, float64, float16 and bfloat16. Sums and products are multiplied by `factor` before they
/// are rounded; minimum and maximum, which round nothing, take none.
/// Half types are computed in float32 and rounded once, to nearest even; a NaN stays one.
void reduce_floating(DataType type, Reduction reduction, const Destinations& destinations,
                     Sources sources, std::size_t count, double factor);

/// Of `half`, a half type, and float32, which each source says and `is_wide` says of the
/// destinations; else as reduce_floating(). Sums and products.
void reduce_mixed(DataType half, bool is_wide, Reduction reduction,
                  std::span<std::byte* const> destinations, std::span<const TypedSource> sources,
                  std::size_t count, double factor);

/// Integers and bool, which wrap around (bool: or, and). A product takes one destination.
void reduce_integer(DataType type, Reduction reduction, const Destinations& destinations,
                    Sources sources, std::size_t count);

/// The product of complex64 or complex128.
void multiply_complex(DataType type, std::byte* destination, Sources sources, std::size_t count);

/// As Device::adasum.
void combine_adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
                    std::size_t count);

}  // namespace kolo
