// Creates the UCX transport, without UCX's headers. Called once per rank, by the code that composes
// a runtime.
#pragma once

#include "runtime/base/environment.h"
#include "transport/transport.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace kolo {

struct UcxOptions {
  /// The process's variables. A UCX_… variable of the user overrides the settings below.
  Environment environment{Environment::Variables{}};
  /// As UCX_TLS: the UCX transports that may be used. Empty: all that UCX finds.
  std::string transports = {};
  /// Network device, such as "eth0" or "mlx5_0:1". Empty: all.
  std::string interface = {};
  /// Whether UCX's own lines go to stderr, as with KOLO_LOG_LEVEL=info. Otherwise errors quote one.
  bool shows_log = false;
  /// From this many bytes, messages to ranks on this host go by rendezvous: the receiver reads the
  /// sender's memory, perhaps still after the sender's fail_all(). Unset: never, which was measured
  /// best (see kHostRendezvousFrom in ucx_transport.cc).
  std::optional<std::size_t> host_rendezvous_from = std::nullopt;
};

/// A transport with its own context and worker; kTransport or kUnsupported if UCX finds no usable
/// device.
Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options);

}  // namespace kolo
