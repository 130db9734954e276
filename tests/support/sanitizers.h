// Whether this build looks for something: what it looks for does not depend on how often or on how
// much the same is done, and makes that some ten times slower.
#pragma once

namespace kolo::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Of the worlds whose schedules are proved.
inline constexpr int kLargestWorld = kSanitized ? 16 : 64;

}  // namespace kolo::test
