#include "runtime/bootstrap/socket.h"

#include "runtime/base/check.h"
#include "runtime/base/system_error.h"
#include "runtime/bootstrap/pause.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace kolo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Warn = std::function<void(const std::string&)>;

// How long a name may take to become known, such as that of a container that starts meanwhile.
constexpr seconds kTimeForName(30);
// Between two lookups: name servers have other questions to answer.
constexpr milliseconds kPauseForName(500);

struct AddressesDeleter {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesDeleter>;

/// The error of the lookup, or 0. The lookup itself is the system's and has no deadline.
int resolve(const Endpoint& endpoint, int flags, Addresses& addresses) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(endpoint.host.empty() ? nullptr : endpoint.host.c_str(),
                                  std::to_string(endpoint.port).c_str(), &hints, &list);
  addresses.reset(list);
  return error;
}

Error unknown_name(const Endpoint& endpoint, int error) {
  return KOLO_ERROR(
      kInvalidArgument,
      "the host of {} is unknown here ({}); give the name or address of the host that serves, as "
      "this host sees it (MASTER_ADDR, or the host in KOLO_INIT_METHOD)",
      to_text(endpoint), ::gai_strerror(error));
}

/// As resolve(), but repeats the lookup of an unknown name until `for_name`. The first such answer
/// sets `for_name` and warns. Several calls may share `for_name`: then they wait and warn once in
/// all.
int resolve_patiently(const Endpoint& endpoint, Addresses& addresses, Deadline deadline,
                      std::optional<Deadline>& for_name, const Warn& warn) {
  for (;;) {
    const int error = resolve(endpoint, 0, addresses);
    if ((error != EAI_NONAME && error != EAI_NODATA) || deadline.expired()) return error;
    if (!for_name) {
      for_name = Deadline::after(deadline.remaining(kTimeForName));
      if (warn) {
        warn(fmt::format("the host of {} is unknown here ({}); asking again for {} s",
                         to_text(endpoint), ::gai_strerror(error),
                         std::chrono::ceil<seconds>(deadline.remaining(kTimeForName)).count()));
      }
    }
    if (for_name->expired()) return error;
    pause_for(kPauseForName, *for_name);
  }
}

/// For listening: also repeats temporary failures, until the deadline.
int resolve_in_time(const Endpoint& endpoint, Addresses& addresses, Deadline deadline,
                    const Warn& warn) {
  std::optional<Deadline> for_name;
  for (;;) {
    const int error = resolve_patiently(endpoint, addresses, deadline, for_name, warn);
    if (error != EAI_AGAIN || deadline.expired()) return error;
    pause_for(kPauseForName, deadline);
  }
}

UniqueDescriptor open_socket(const addrinfo& address) {
  UniqueDescriptor fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  // Requests and answers are small, and each is waited for.
  if (fd) ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

/// 0, or the errno of binding and listening.
int try_listen(const addrinfo& address, Listener& listener) {
  UniqueDescriptor fd = open_socket(address);
  if (!fd) return errno;
  const int on = 1;
  // Allows a port of a job that has just ended, although its connections linger.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int off = 0;
  // Listening at all addresses then includes IPv4.
  if (address.ai_family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0) return errno;
  if (::listen(fd.get(), SOMAXCONN) != 0) return errno;
  sockaddr_storage bound = {};
  socklen_t length = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) return errno;
  listener.port =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                        : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  listener.fd = std::move(fd);
  return 0;
}

/// Whether another address would not help after this result of try_listen().
bool is_final(int error) { return error == 0 || error == EADDRINUSE || error == EACCES; }

/// Listens at all addresses of this host, in both families if the host has both.
int try_listen_everywhere(std::uint16_t port, Listener& listener) {
  int error = EADDRNOTAVAIL;
  for (const char* all : {"::", "0.0.0.0"}) {
    Addresses addresses;
    if (resolve({all, port}, AI_NUMERICHOST, addresses) != 0) continue;
    error = try_listen(*addresses, listener);
    if (is_final(error)) break;
  }
  return error;
}

/// Listens at the first of the addresses where this host can.
int try_listen_at_any(const addrinfo* addresses, Listener& listener) {
  int error = EADDRNOTAVAIL;
  for (const addrinfo* a = addresses; a != nullptr && !is_final(error); a = a->ai_next)
    error = try_listen(*a, listener);
  return error;
}

bool is_local_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

/// Whether connect() failed because no interface that is up has the address. (For IPv4,
/// EADDRNOTAVAIL may mean that no port is free, which may pass.)
bool has_no_interface(const sockaddr& address, int error) {
  return error == ENETUNREACH || (error == EADDRNOTAVAIL && address.sa_family == AF_INET6);
}

/// Connecting sockets get a port from a range. If nobody listens at a port of that range, a socket
/// may get that very port, and TCP then connects it to itself.
bool is_connected_to_itself(int fd) {
  sockaddr_storage here = {};
  sockaddr_storage there = {};
  socklen_t length = sizeof here;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &length) != 0) return false;
  length = sizeof there;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &length) != 0) return false;
  return std::memcmp(&here, &there, length) == 0;
}

/// 0, or the errno of connecting.
int try_connect(const addrinfo& address, UniqueDescriptor& connected, Deadline deadline) {
  UniqueDescriptor fd = open_socket(address);
  if (!fd) return errno;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!await(fd.get(), POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return error;
  }
  if (is_connected_to_itself(fd.get())) return ECONNREFUSED;
  connected = std::move(fd);
  return 0;
}

/// As try_connect(), for the first of the addresses that answers. `is_down`: this host's loopback
/// interface is down.
int try_connect_to_any(const addrinfo* addresses, UniqueDescriptor& connected, Deadline deadline,
                       bool& is_down) {
  int error = EHOSTUNREACH;
  is_down = addresses != nullptr;
  for (const addrinfo* a = addresses; a != nullptr && error != 0; a = a->ai_next) {
    error = try_connect(*a, connected, Deadline::after(deadline.remaining(seconds(5))));
    is_down = is_down && is_local_address(*a->ai_addr) && has_no_interface(*a->ai_addr, error);
  }
  return error;
}

}  // namespace

bool await(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry = {fd, events, 0};
    const auto left = std::chrono::ceil<milliseconds>(deadline.remaining(seconds(60)));
    if (::poll(&entry, 1, static_cast<int>(left.count())) > 0) return true;
    if (deadline.expired()) return false;
  }
}

std::string to_text(const Endpoint& endpoint) {
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
               : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  Endpoint endpoint;
  const auto colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    const std::string_view port = text.substr(colon + 1);
    endpoint.host = text.substr(0, colon);
    if (endpoint.host.starts_with('[') && endpoint.host.ends_with(']')) {
      endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
    }
    const auto [rest, error] =
        std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
    const bool is_port = error == std::errc() && rest == port.data() + port.size();
    if (is_port && !endpoint.host.empty() && to_text(endpoint) == text) return endpoint;
  }
  return KOLO_ERROR(kInvalidArgument,
                    "'{}' is no address: expected host:port, as node1:29500 or [::1]:29500", text);
}

bool is_loopback(const Endpoint& endpoint) {
  if (endpoint.host == "localhost") return true;
  Addresses addresses;
  return resolve(endpoint, AI_NUMERICHOST, addresses) == 0 && is_local_address(*addresses->ai_addr);
}

Status await_name(const Endpoint& endpoint, Deadline deadline, const Warn& warn) {
  Addresses addresses;
  const int unresolved = resolve_in_time(endpoint, addresses, deadline, warn);
  if (unresolved != 0) return unknown_name(endpoint, unresolved);
  return {};
}

Result<Listener> listen_at(const Endpoint& endpoint, Deadline deadline, const Warn& warn) {
  Listener listener;
  int error = EADDRNOTAVAIL;
  if (!endpoint.host.empty()) {
    Addresses addresses;
    const int unresolved = resolve_in_time(endpoint, addresses, deadline, warn);
    if (unresolved != 0) return unknown_name(endpoint, unresolved);
    // Debian resolves a host's own name to 127.0.1.1, where no other host would find it. And of
    // several addresses, other hosts may know any.
    const bool everywhere = !is_loopback(endpoint) && (is_local_address(*addresses->ai_addr) ||
                                                       addresses->ai_next != nullptr);
    if (!everywhere) error = try_listen_at_any(addresses.get(), listener);
  }
  if (error == EADDRNOTAVAIL) error = try_listen_everywhere(endpoint.port, listener);
  if (error == 0) return listener;
  return KOLO_ERROR(kInvalidArgument,
                    "cannot listen at {}: {}; choose another port (MASTER_PORT, kolo-run's "
                    "--master-port, or the one in KOLO_INIT_METHOD), or end the program that has "
                    "this one",
                    to_text(endpoint), reason(error));
}

Deadline warns_after(Deadline deadline) {
  constexpr seconds kSilence(10);
  return Deadline::after(deadline.remaining(4 * kSilence) / 4);
}

Result<UniqueDescriptor> connect_once(const Endpoint& endpoint, Deadline deadline) {
  Addresses addresses;
  UniqueDescriptor fd;
  bool is_down = false;
  int error = EHOSTUNREACH;
  if (resolve_in_time(endpoint, addresses, deadline, nullptr) == 0)
    error = try_connect_to_any(addresses.get(), fd, deadline, is_down);
  if (error == 0) return fd;
  return KOLO_ERROR(kPeerLost, "nobody answers at {} ({})", to_text(endpoint), reason(error));
}

Result<UniqueDescriptor> connect_to(const Endpoint& endpoint, Deadline deadline,
                                    const std::function<void(const std::string&)>& warn) {
  milliseconds pause(5);
  std::optional<Deadline> for_name;
  const Deadline silence = warns_after(deadline);
  bool has_warned = warn == nullptr;
  for (;;) {
    Addresses addresses;
    const int unresolved = resolve_patiently(endpoint, addresses, deadline, for_name, warn);
    if (unresolved != 0 && unresolved != EAI_AGAIN) return unknown_name(endpoint, unresolved);
    UniqueDescriptor fd;
    bool is_down = false;
    const int error = try_connect_to_any(addresses.get(), fd, deadline, is_down);
    if (error == 0) return fd;
    if (is_down) {
      return KOLO_ERROR(kInvalidArgument,
                        "this host does not reach its own {}: {}; its loopback interface is down "
                        "(ip link set lo up)",
                        to_text(endpoint), reason(error));
    }
    if (deadline.expired()) {
      return KOLO_ERROR(kTimeout, "nobody answers at {} ({})", to_text(endpoint), reason(error));
    }
    if (silence.expired() && !std::exchange(has_warned, true)) {
      warn(fmt::format("nobody answers at {} yet ({}); trying for {} s more (KOLO_INIT_TIMEOUT)",
                       to_text(endpoint), reason(error),
                       std::chrono::ceil<seconds>(deadline.remaining()).count()));
    }
    // Nothing signals when another host begins to listen, so attempts become rarer.
    pause_for(pause, deadline);
    pause = std::min(pause * 2, milliseconds(250));
  }
}

namespace {
/// The address that `get` tells: getsockname() or getpeername().
Result<std::string> address_by(int (*get)(int, sockaddr*, socklen_t*), int fd) {
  sockaddr_storage socket_address = {};
  socklen_t length = sizeof socket_address;
  std::array<char, NI_MAXHOST> text = {};
  if (get(fd, reinterpret_cast<sockaddr*>(&socket_address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&socket_address), length, text.data(), text.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return KOLO_ERROR(kPeerLost, "the connection has no address");
  }
  // An IPv4 connection to a dual-stack socket has the address ::ffff:10.0.0.1.
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view address = text.data();
  const bool is_mapped = address.starts_with(kMapped) && address.find('.') != address.npos;
  return std::string(is_mapped ? address.substr(kMapped.size()) : address);
}
}  // namespace

Result<std::string> local_address(int fd) { return address_by(&::getsockname, fd); }

Result<std::string> remote_address(int fd) { return address_by(&::getpeername, fd); }

void end_if_silent(int fd) {
  // Asks after 10 s of silence, and twice more; data that nobody acknowledges counts alike.
  const int on = 1;
  const int seconds = 10;
  const int times = 2;
  const unsigned int milliseconds = 30'000;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

Status send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!await(fd, POLLOUT, deadline))
        return KOLO_ERROR(kTimeout, "the other side reads nothing");
    } else if (errno != EINTR) {
      return KOLO_ERROR(kPeerLost, "the connection broke: {}", reason(errno));
    }
  }
  return {};
}

Result<std::string> receive_some(int fd, Deadline deadline) {
  std::array<char, 4096> bytes;
  for (;;) {
    const auto got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) return std::string(bytes.data(), static_cast<std::size_t>(got));
    if (got == 0) return KOLO_ERROR(kPeerLost, "the other side closed the connection");
    if (errno == EAGAIN) {
      if (!await(fd, POLLIN, deadline)) return KOLO_ERROR(kTimeout, "no answer");
    } else if (errno != EINTR) {
      return KOLO_ERROR(kPeerLost, "the connection broke: {}", reason(errno));
    }
  }
}

Result<std::string> receive_exactly(int fd, std::size_t count, Deadline deadline) {
  std::string bytes(count, '\0');
  for (std::size_t done = 0; done < count;) {
    const auto got = ::recv(fd, bytes.data() + done, count - done, 0);
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0) {
      return KOLO_ERROR(kPeerLost, "the other side closed the connection");
    } else if (errno == EAGAIN) {
      if (!await(fd, POLLIN, deadline)) return KOLO_ERROR(kTimeout, "no answer");
    } else if (errno != EINTR) {
      return KOLO_ERROR(kPeerLost, "the connection broke: {}", reason(errno));
    }
  }
  return bytes;
}

}  // namespace kolo
