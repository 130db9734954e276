// The system's text for an errno. Any thread. Header-only.
#pragma once

#include <string>
#include <system_error>

namespace kolo {

/// "No such file or directory".
inline std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace kolo
