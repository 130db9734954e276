// How long tests of what waits let it wait. Header-only.
#pragma once

#include "runtime/base/deadline.h"

#include <chrono>

namespace kolo {

/// For what must not come.
inline Deadline soon() { return Deadline::after(std::chrono::milliseconds(50)); }
/// For what must come.
inline Deadline later() { return Deadline::after(std::chrono::seconds(30)); }

}  // namespace kolo
