#include "transport/ucx/ucx_fatal.h"

#include <kolo/export.h>

#include <dlfcn.h>

#include <array>
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace kolo {
namespace {

/// Where this thread goes if UCX gives up; null outside of outlive_ucx().
thread_local std::jmp_buf* way_back = nullptr;
thread_local std::array<char, 512> last_words;

}  // namespace

std::optional<std::string> outlive_ucx(void (*call)(void*), void* argument) {
  std::jmp_buf*& back = way_back;  // looked up once: every pass of the cycle comes here
  if (back != nullptr) {
    call(argument);
    return std::nullopt;
  }
  std::jmp_buf here;
  if (setjmp(here) != 0) {
    back = nullptr;
    return last_words.data();
  }
  back = &here;
  call(argument);
  back = nullptr;
  return std::nullopt;
}

}  // namespace kolo

// UCX's own, which libkolo comes before in the order of symbols (ucs/debug/assert.h, not
// installed).
extern "C" [[noreturn]] KOLO_API void ucs_fatal_error_format(const char* file, unsigned line,
                                                             const char* function,
                                                             const char* format, ...) {
  using namespace kolo;  // NOLINT(google-build-using-namespace)
  std::array<char, last_words.size()> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  if (way_back != nullptr) {
    const std::string_view path = file;
    std::snprintf(last_words.data(), last_words.size(), "%s:%u %.400s",
                  path.substr(path.rfind('/') + 1).data(), line, text.data());
    std::longjmp(*way_back, 1);
  }
  using Fatal = void (*)(const char*, unsigned, const char*, const char*, ...);
  if (auto* const fatal = reinterpret_cast<Fatal>(dlsym(RTLD_NEXT, "ucs_fatal_error_format")))
    fatal(file, line, function, "%s", text.data());
  std::abort();
}
