// TCP sockets with deadlines, for the store: listen, connect, send, receive. Used by the thread
// that calls init and by the store's server.
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/unique_handle.h"

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace kolo {

struct Endpoint {
  std::string host;  ///< a name or an address; empty when listening: any address
  std::uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

/// "host:29500", "[::1]:29500".
std::string to_text(const Endpoint& endpoint);
/// kInvalidArgument for what to_text() would not write. The port may be 0.
Result<Endpoint> parse_endpoint(std::string_view text);
/// Whether the address is valid only on its own host: localhost, 127.…, ::1.
bool is_loopback(const Endpoint& endpoint);

struct Listener {
  UniqueDescriptor fd;
  std::uint16_t port = 0;  ///< the bound port, also if 0 was asked for
};
/// Listens at the address if this host has it, else at all addresses (others may resolve a name to
/// this host, or translate an address). kInvalidArgument, with a remedy, for a port that is taken
/// or not allowed, and for an unknown name. Like connect_to(), repeats the lookup for half a
/// minute, but not beyond the deadline.
Result<Listener> listen_at(const Endpoint& endpoint, Deadline deadline = Deadline::after({}),
                           const std::function<void(const std::string&)>& warn = nullptr);
/// Only the lookup of listen_at().
Status await_name(const Endpoint& endpoint, Deadline deadline,
                  const std::function<void(const std::string&)>& warn);

/// When a wait that ends at the deadline warns: after 10 s, or a quarter of the time left.
Deadline warns_after(Deadline deadline);

/// To a side that listens already, so that a refusal is an error at once: it has closed.
Result<UniqueDescriptor> connect_once(const Endpoint& endpoint, Deadline deadline);
/// Tries again until the deadline, since the other side may start later. kTimeout tells the last
/// refusal. kInvalidArgument if the name is unknown after half a minute, or at once if this host
/// cannot reach even itself. Calls `warn` once for a name that is not known yet, and once if nobody
/// answers for some seconds.
Result<UniqueDescriptor> connect_to(const Endpoint& endpoint, Deadline deadline,
                                    const std::function<void(const std::string&)>& warn = nullptr);

/// The address of this end of a connection, and of the other end, without the port.
Result<std::string> local_address(int fd);
Result<std::string> remote_address(int fd);

/// The connection ends, too, when the other host has not answered for 30 s.
void end_if_silent(int fd);

/// Waits for poll()'s `events`; false at the deadline.
bool await(int fd, short events, Deadline deadline);

/// Sends all of `bytes`. kTimeout, or kPeerLost when the connection ends. The socket may be a
/// blocking one.
Status send_all(int fd, std::string_view bytes, Deadline deadline);
/// What has arrived, at least one byte. kTimeout, or kPeerLost when the connection ends. The socket
/// may be a blocking one.
Result<std::string> receive_some(int fd, Deadline deadline);
/// Exactly `count` bytes; kTimeout, or kPeerLost when the connection ends.
Result<std::string> receive_exactly(int fd, std::size_t count, Deadline deadline);

}  // namespace kolo
