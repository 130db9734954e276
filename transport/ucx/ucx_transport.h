// The door to the transport over UCX, free of UCX's headers. Called once a rank, by whoever
// composes a runtime.
#pragma once

#include "runtime/base/environment.h"
#include "transport/transport.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace kolo {

struct UcxOptions {
  /// The process's variables: what the user set as UCX_… is never overridden by what follows.
  Environment environment{Environment::Variables{}};
  /// As UCX_TLS: which of UCX's transports may be used. Empty: all that UCX finds.
  std::string transports = {};
  /// Network device, as "eth0" or "mlx5_0:1". Empty: all.
  std::string interface = {};
  /// Whether UCX's own lines go to stderr, as KOLO_LOG_LEVEL=info asks; else errors quote one.
  bool shows_log = false;
  /// Bytes from which messages to ranks on this host go by rendezvous: their receiver reads the
  /// sender's memory, perhaps still after the sender's fail_all(). Unset: never, which was measured
  /// best (see kHostRendezvousFrom in ucx_transport.cc).
  std::optional<std::size_t> host_rendezvous_from = std::nullopt;
};

/// A transport with its own context and worker; kTransport or kUnsupported if UCX finds no usable
/// device.
Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options);

}  // namespace kolo
