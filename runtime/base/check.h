// Macros that build an Error with its source location, return an error to the caller, and stop the
// process at a broken invariant (a bug in kolo, never a user's mistake). Only for kolo's sources.
#pragma once

#include <kolo/error.h>

#include <fmt/format.h>

namespace kolo {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace kolo

/// An Error whose message is formatted as by fmt::format.
#define KOLO_ERROR(code, ...) \
  (::kolo::Error{::kolo::ErrorCode::code, ::fmt::format(__VA_ARGS__), __FILE__, __LINE__})

/// Returns from the calling function with the error of a Status or Result expression, if there is
/// one.
#define KOLO_TRY(expression)                                                       \
  do {                                                                             \
    auto kolo_status_ = (expression);                                              \
    if (!kolo_status_.ok()) return ::kolo::Error(std::move(kolo_status_).error()); \
  } while (false)

#define KOLO_CONCAT_INNER(a, b) a##b
#define KOLO_CONCAT(a, b) KOLO_CONCAT_INNER(a, b)

/// KOLO_ASSIGN(auto x, f()): x = value of f(), or return f()'s error.
#define KOLO_ASSIGN(target, expression) \
  KOLO_ASSIGN_INNER(KOLO_CONCAT(kolo_result_, __LINE__), target, expression)
#define KOLO_ASSIGN_INNER(result, target, expression)                \
  auto result = (expression);                                        \
  if (!result.ok()) return ::kolo::Error(std::move(result).error()); \
  target = *std::move(result)

/// Stops the process when an invariant of kolo itself is broken.
#define KOLO_CHECK(condition) \
  ((condition) ? void(0) : ::kolo::check_failed(#condition, __FILE__, __LINE__))
