// Pauses between two polls of something that cannot signal: a file, a name or a host.
#pragma once

#include "runtime/base/deadline.h"

#include <poll.h>

#include <chrono>

namespace kolo {

/// Sleeps for `pause`, but not beyond the deadline.
inline void pause_for(std::chrono::milliseconds pause, const Deadline& deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining(pause));
  ::poll(nullptr, 0, static_cast<int>(left.count()));
}

}  // namespace kolo
