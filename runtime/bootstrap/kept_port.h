// A port that a process keeps for a meeting which it may serve later, at an address of this host
// that other hosts can reach. Any thread.
#pragma once

#include "runtime/base/unique_handle.h"
#include "runtime/bootstrap/socket.h"

#include <string>

namespace kolo {

/// Bound, but nobody listens: no other program gets the port, and listen_at() may listen there.
struct KeptPort {
  UniqueDescriptor fd;
  Endpoint endpoint;
};

/// At the address of the network device `interface`; if there is none of this name (empty), at the
/// first address that is not this host's own alone; else at 127.0.0.1.
Result<KeptPort> keep_port(const std::string& interface);

}  // namespace kolo
