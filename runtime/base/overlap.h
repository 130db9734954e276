// Whether two pieces of memory have a byte in common. Pure; also for pieces of different objects.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace kolo {

inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

}  // namespace kolo
