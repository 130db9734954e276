// Whether this build has a sanitizer. Sanitizers find errors in few and small repetitions as well,
// and make tests some ten times slower.
#pragma once

#include <string>
#include <vector>

namespace kolo::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// The largest world whose schedules are proved.
inline constexpr int kLargestWorld = kSanitized ? 16 : 64;

/// Values of a parameter; the last one is left out with a sanitizer.
inline std::vector<std::string> fewer_if_sanitized(std::vector<std::string> values) {
  if (kSanitized) values.pop_back();
  return values;
}

}  // namespace kolo::test
