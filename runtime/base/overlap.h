// How pieces of memory lie to each other. Pure; also for pieces of different objects.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace kolo {

/// Whether they have a byte in common.
inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

/// Whether `bytes` from each overlap, but do not begin together: what is written to one, element by
/// element, hits what has yet to be read of the other.
inline bool are_shifted(const std::byte* a, const std::byte* b, std::size_t bytes) {
  return a != b && overlap({a, bytes}, {b, bytes});
}

}  // namespace kolo
