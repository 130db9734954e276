// What is said to a program that trains before init(), in place of the first call that misses it.
// Private to bindings/torch; any thread.
#pragma once

#include <string>

namespace kolo {

/// Throws kShutdown, naming `who` and what to do, before init() and after shutdown(); kUnsupported
/// in a child that was forked after init().
void check_initialized(const std::string& who);

}  // namespace kolo
