#include "runtime/base/check.h"
#include "tools/run/plan.h"

#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <set>

namespace kolo::run {
namespace {

/// Prefers IPv4 to IPv6. Link-local addresses come last: hosts name their own ends of a link
/// differently.
int rank_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) return 3;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LINKLOCAL(&v6) ? 1 : 2;
}

}  // namespace

Result<std::string> address_of_interface(const std::string& name) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return KOLO_ERROR(kInternal, "this host tells no interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, ::freeifaddrs);
  std::set<std::string> names;
  std::string best;
  int best_rank = 0;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    names.insert(entry->ifa_name);
    if (entry->ifa_name != name) continue;
    std::array<char, NI_MAXHOST> text = {};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const int rank = rank_of(*entry->ifa_addr);
    if (rank > best_rank && ::getnameinfo(entry->ifa_addr, size, text.data(), text.size(), nullptr,
                                          0, NI_NUMERICHOST) == 0) {
      best = text.data();
      best_rank = rank;
    }
  }
  if (!best.empty()) return best;
  return KOLO_ERROR(kInvalidArgument,
                    "--interface {}: this host has no such network with an address; it has {}",
                    name, fmt::join(names, ", "));
}

}  // namespace kolo::run
