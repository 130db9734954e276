// relax(): for loops that poll for another core's write. Any thread.
#pragma once

namespace kolo {

/// Pauses briefly, which saves energy and leaves the core to its other hardware thread.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // As Rust's spin_loop(): most cores treat `yield` as a no-op.
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace kolo
