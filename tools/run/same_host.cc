#include "tools/run/same_host.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace kolo::run {
namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::set<std::string>;

// For all names together: without a name server that answers, a single lookup takes longer.
constexpr std::chrono::seconds kTimeForNames(5);
constexpr std::string_view kLoopback = "127.0.0.1";

std::string to_address(const sockaddr& address, socklen_t size) {
  std::array<char, NI_MAXHOST> text = {};
  const int error =
      ::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  if (error != 0) return "";
  const std::string_view own = text.data();
  return std::string(own.starts_with("127.") || own == "::1" ? kLoopback : own);
}

Addresses addresses_of(const std::string& name) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &raw) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, ::freeaddrinfo);
  Addresses found;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next)
    found.insert(to_address(*entry->ai_addr, entry->ai_addrlen));
  return found;
}

Addresses addresses_of_this_host() {
  Addresses found = {std::string(kLoopback)};
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, ::freeifaddrs);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family == AF_INET) found.insert(to_address(*entry->ifa_addr, sizeof(sockaddr_in)));
    if (family == AF_INET6) found.insert(to_address(*entry->ifa_addr, sizeof(sockaddr_in6)));
  }
  return found;
}

std::string common(const Addresses& some, const Addresses& others) {
  const auto shared = std::find_if(some.begin(), some.end(), [&](const std::string& address) {
    return others.contains(address);
  });
  return shared == some.end() ? "" : *shared;
}

/// Some name servers have an address for every name. Asks once for a name that no host has.
class EveryName {
 public:
  bool has(const std::string& address) {
    if (!addresses_) addresses_ = addresses_of("kolo-run-asks-for-no-host");
    return addresses_->contains(address);
  }

 private:
  std::optional<Addresses> addresses_;
};

bool is_certainly_this_host(std::string_view name) {
  return name == "localhost" || name == kLoopback || name == "::1" || name == this_host();
}

/// One name is the short form of the other, but another host may have the same short name.
bool may_be_this_host(std::string_view name) {
  const std::string own = this_host();
  return own.starts_with(std::string(name) + ".") || name.starts_with(own + ".");
}

}  // namespace

void mark_this_host(std::vector<Host>& hosts) {
  for (Host& host : hosts)
    host.is_here = is_certainly_this_host(host.name) || may_be_this_host(host.name);
}

std::vector<Host> without_aliases(std::vector<Host> hosts, std::vector<std::string>& warnings) {
  mark_this_host(hosts);
  const Addresses own = addresses_of_this_host();
  const auto end = Clock::now() + kTimeForNames;
  std::vector<Host> different;
  std::vector<Addresses> addresses;  // addresses of `names`
  EveryName every_name;
  for (Host& host : hosts) {
    Addresses found;
    if (is_certainly_this_host(host.name)) {
      found = own;
    } else if (host.name.find('@') == std::string::npos && Clock::now() < end) {
      found = addresses_of(host.name);
      const std::string here = common(found, own);
      if (!found.empty()) host.is_here = !here.empty() && !every_name.has(here);
      if (host.is_here) found = own;
      if (!host.is_here && may_be_this_host(host.name)) {
        warnings.push_back(
            fmt::format("{} has no address of this host, {}, so it is taken for another one; "
                        "localhost means this one",
                        host.name, this_host()));
      }
    }
    std::size_t same = 0;
    std::string shared;
    for (; same < different.size(); ++same) {
      shared = common(addresses[same], found);
      if (!shared.empty() && !every_name.has(shared)) break;
    }
    if (same == different.size()) {
      different.push_back(std::move(host));
      addresses.push_back(std::move(found));
      continue;
    }
    different[same].slots += host.slots;
    warnings.push_back(fmt::format("{} is {} ({}): one host, whose slots add up", host.name,
                                   different[same].name, host.is_here ? "this host" : shared));
  }
  return different;
}

std::vector<Host> known_hosts(std::vector<Host> hosts, bool by_ssh,
                              std::vector<std::string>& warnings) {
  if (by_ssh) return without_aliases(std::move(hosts), warnings);
  mark_this_host(hosts);
  return hosts;
}

}  // namespace kolo::run
