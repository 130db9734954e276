// What kolo-perf --audit measures beside kolo's choice.
#pragma once

#include <kolo/export.h>

#include <string>

namespace kolo {

/// Runtime::force_algorithm(). Throws kShutdown before init().
KOLO_API void force_algorithm(const std::string& algorithm);

}  // namespace kolo
