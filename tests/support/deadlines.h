// Deadlines for tests of waiting. Header-only.
#pragma once

#include "runtime/base/deadline.h"

#include <chrono>

namespace kolo {

/// For an event that must not come.
inline Deadline soon() { return Deadline::after(std::chrono::milliseconds(50)); }
/// For an event that must come.
inline Deadline later() { return Deadline::after(std::chrono::seconds(30)); }

}  // namespace kolo
