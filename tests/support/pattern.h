// What messages of transport tests carry. In the support library, which is optimised.
#pragma once

#include <cstddef>
#include <vector>

namespace kolo::test {

/// Bytes that differ by offset and `seed`, so that a mixed-up or shifted message shows.
std::vector<std::byte> pattern(std::size_t size, unsigned seed);

}  // namespace kolo::test
