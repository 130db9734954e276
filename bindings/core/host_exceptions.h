// Exceptions on their way through a library to a host language. LibTorch turns exceptions of types
// that it does not know into a plain error of Python, where its C++ has called kolo: in backward().
// So the other bindings throw there what the host language's binding has set. Any thread.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>

#include <utility>

namespace kolo {

/// `thrower` throws the exception that the library and the host language know, in place of kolo's.
/// Any thread calls it. Null: kolo's exceptions stay as they are.
KOLO_API void set_host_exceptions(void (*thrower)(const Exception&));

/// In the handler of this exception: throws it again, as the host language has it.
[[noreturn]] KOLO_API void rethrow_for_host(const Exception& error);

/// Returns the result of `call`. An exception of kolo leaves it as the host language's.
template <class Call>
auto throwing_for_host(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const Exception& error) {
    rethrow_for_host(error);
  }
}

}  // namespace kolo
