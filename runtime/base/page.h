// Pages of memory, as kolo counts them. Where the system's are larger, mmap() refuses what does not
// fit them.
#pragma once

#include <cstddef>

namespace kolo {

inline constexpr std::size_t kPage = 4096;

}  // namespace kolo
