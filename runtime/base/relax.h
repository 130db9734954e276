// relax(): for loops that wait for another core's write. Any thread.
#pragma once

namespace kolo {

/// Leaves the core's other hardware thread, and its energy, more of it for a moment.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // As Rust's spin_loop(): most cores take `yield` for nothing.
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace kolo
