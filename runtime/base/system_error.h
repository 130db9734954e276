// What the system says of an errno, on any thread. Header-only.
#pragma once

#include <string>
#include <system_error>

namespace kolo {

/// "No such file or directory".
inline std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace kolo
