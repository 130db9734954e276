// A port for a server that is started later. One that the system gives to whoever asks for any
// would be given to others meanwhile: tests run side by side, and connections take ports, too.
#pragma once

#include "runtime/bootstrap/socket.h"

#include <cstdint>
#include <random>

namespace kolo::testing {

/// One at which nobody listens, below those that Linux gives to whoever asks (32768 and above).
inline std::uint16_t free_port() {
  std::random_device random;
  std::uniform_int_distribution<int> ports(10000, 32000);
  for (;;) {
    const auto port = static_cast<std::uint16_t>(ports(random));
    if (listen_at({"127.0.0.1", port}).ok()) return port;
  }
}

}  // namespace kolo::testing
