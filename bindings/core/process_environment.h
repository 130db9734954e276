// What bindings may ask of the process's environment. Any thread that nobody changes it beside.
#pragma once

#include <kolo/export.h>

#include <optional>
#include <string>

namespace kolo {

/// A variable that is no knob of kolo's.
KOLO_API std::optional<std::string> environment_variable(const std::string& name);

}  // namespace kolo
