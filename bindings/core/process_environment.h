// Environment variables for the bindings. Any thread, while no other thread changes the
// environment.
#pragma once

#include <kolo/export.h>

#include <optional>
#include <string>

namespace kolo {

/// Reads a variable that is not one of kolo's knobs.
KOLO_API std::optional<std::string> environment_variable(const std::string& name);

}  // namespace kolo
