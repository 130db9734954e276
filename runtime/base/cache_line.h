// Cache lines: their size, and asking for one before it is needed.
#pragma once

#include <cstddef>

namespace kolo {

inline constexpr std::size_t kCacheLine = 64;

/// Asks for the line at `address`, which need not exist, so as to write it: other cores give theirs
/// up meanwhile. What the compilers make of __builtin_prefetch() for a general x86-64 only reads.
inline void fetch_to_write(const std::byte* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*address));
#else
  __builtin_prefetch(address, /*rw=*/1);
#endif
}

/// The same for all lines of some bytes, of which the first one begins a line.
inline void fetch_to_write(const std::byte* address, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kCacheLine) fetch_to_write(address + at);
}

}  // namespace kolo
