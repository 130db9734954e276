// The error for a program that trains before init(), raised in place of the first call that needs
// init(). Private to bindings/torch; any thread.
#pragma once

#include <string>

namespace kolo {

/// Throws kShutdown before init() and after shutdown(), naming `who` and the remedy. Throws
/// kUnsupported in a child that was forked after init().
void check_initialized(const std::string& who);

}  // namespace kolo
