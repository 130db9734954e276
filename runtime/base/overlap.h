// How two memory ranges relate. Pure functions; the ranges may belong to different objects.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace kolo {

/// Whether the two ranges share a byte.
inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

/// Whether two ranges of `bytes` overlap but begin at different addresses. An element-wise pass
/// that writes one would then overwrite unread input in the other.
inline bool are_shifted(const std::byte* a, const std::byte* b, std::size_t bytes) {
  return a != b && overlap({a, bytes}, {b, bytes});
}

}  // namespace kolo
