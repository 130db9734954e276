// A port for a server that starts later. Tests run side by side and connections take ports, too, so
// a port that the system chooses could be given to others meanwhile.
#pragma once

#include "runtime/bootstrap/socket.h"

#include <cstdint>
#include <random>

namespace kolo::test {

/// A port at which nobody listens, below the range from which Linux chooses (32768 and above).
inline std::uint16_t free_port() {
  std::random_device random;
  std::uniform_int_distribution<int> ports(10000, 32000);
  for (;;) {
    const auto port = static_cast<std::uint16_t>(ports(random));
    if (listen_at({"127.0.0.1", port}).ok()) return port;
  }
}

}  // namespace kolo::test
