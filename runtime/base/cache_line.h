// Cache lines: their size, and how to prefetch one for writing.
#pragma once

#include <cstddef>

namespace kolo {

inline constexpr std::size_t kCacheLine = 64;

/// Prefetches the line at `address` for writing: other cores give up their copies meanwhile. The
/// address may be invalid. __builtin_prefetch() for a generic x86-64 would only prefetch for
/// reading.
inline void fetch_to_write(const std::byte* address) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*address));
#else
  __builtin_prefetch(address, /*rw=*/1);
#endif
}

/// Prefetches every line of `bytes` bytes for writing; `address` begins a line.
inline void fetch_to_write(const std::byte* address, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kCacheLine) fetch_to_write(address + at);
}

}  // namespace kolo
