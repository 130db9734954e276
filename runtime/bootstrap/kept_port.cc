#include "runtime/bootstrap/kept_port.h"

#include "runtime/base/check.h"
#include "runtime/base/system_error.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

namespace kolo {
namespace {

bool is_link_local(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

/// How well an address suits; 0: not at all. Hosts name their own ends of a link-local address
/// differently.
int suits(const ifaddrs& entry, const std::string& interface) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return 0;
  const bool is_v4 = entry.ifa_addr->sa_family == AF_INET;
  if (!is_v4 && entry.ifa_addr->sa_family != AF_INET6) return 0;
  if (is_link_local(*entry.ifa_addr)) return 0;
  const int wanted = interface == entry.ifa_name ? 4 : 0;
  if ((entry.ifa_flags & IFF_LOOPBACK) != 0 && wanted == 0) return 0;
  return wanted + (is_v4 ? 2 : 1);
}

sockaddr_storage best_address(const std::string& interface) {
  sockaddr_storage best = {};
  reinterpret_cast<sockaddr_in&>(best).sin_family = AF_INET;
  reinterpret_cast<sockaddr_in&>(best).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return best;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, ::freeifaddrs);
  int most = 0;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const int how = suits(*entry, interface);
    if (how <= most) continue;
    most = how;
    std::memcpy(&best, entry->ifa_addr,
                entry->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  }
  return best;
}

}  // namespace

Result<KeptPort> keep_port(const std::string& interface) {
  sockaddr_storage address = best_address(interface);
  const bool is_v4 = address.ss_family == AF_INET;
  socklen_t length = is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  KeptPort port{.fd = UniqueDescriptor(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)),
                .endpoint = {}};
  const int on = 1;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!port.fd || ::setsockopt(port.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(port.fd.get(), generic, length) != 0 ||
      ::getsockname(port.fd.get(), generic, &length) != 0)
    return KOLO_ERROR(kTransport, "no TCP port can be kept on this host: {}", reason(errno));
  KOLO_ASSIGN(port.endpoint.host, local_address(port.fd.get()));
  port.endpoint.port = ntohs(is_v4 ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                   : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return port;
}

}  // namespace kolo
