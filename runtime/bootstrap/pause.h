// Waiting for what nothing tells of: between two looks at a file, a name or a host.
#pragma once

#include "runtime/base/deadline.h"

#include <poll.h>

#include <chrono>

namespace kolo {

/// So long, but not beyond the deadline.
inline void pause_for(std::chrono::milliseconds pause, const Deadline& deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining(pause));
  ::poll(nullptr, 0, static_cast<int>(left.count()));
}

}  // namespace kolo
