// The host's vector kernels. Each call picks the best instruction set of this processor. Called by
// host_device.cc only. Stateless; any thread.
//
// Memory is aligned to the element, not more. There is at least one source and one destination; a
// destination may be one of the sources.
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
  Stores stores = Stores::kCached;  ///< kStreaming takes effect if the memory is aligned for it
};

enum class Reduction : std::uint8_t { kSum, kMin, kMax, kProduct };

/// float32, float64, float16 and bfloat16. Sums and products are multiplied by `factor` before they
/// are rounded. Minimum and maximum round nothing and ignore `factor`. Half types are computed in
/// float32 and rounded once, to nearest even. A NaN stays a NaN.
void reduce_floating(DataType type, Reduction reduction, const Destinations& destinations,
                     Sources sources, std::size_t count, double factor);

/// As reduce_floating(), for sources of `half` (a half type) or float32, as each source says.
/// `is_wide`: destinations are float32, otherwise `half`. Sums and products only.
void reduce_mixed(DataType half, bool is_wide, Reduction reduction,
                  std::span<std::byte* const> destinations, std::span<const TypedSource> sources,
                  std::size_t count, double factor);

/// Integers, which wrap around, and bool (sum and maximum: or; product and minimum: and). A product
/// takes one destination.
void reduce_integer(DataType type, Reduction reduction, const Destinations& destinations,
                    Sources sources, std::size_t count);

/// Products of complex64 or complex128.
void multiply_complex(DataType type, std::byte* destination, Sources sources, std::size_t count);

/// As Device::adasum.
void combine_adasum(DataType type, std::byte* destination, const std::byte* a, const std::byte* b,
                    std::size_t count);

}  // namespace kolo
