// SameHost: which host names mean this host, and which mean the same host. Used by kolo-run's main
// thread, before anything is started and when the host discovery has a new list.
#pragma once

#include "tools/run/placement.h"

#include <string>
#include <vector>

namespace kolo::run {

/// Sets Host::is_here by the names alone.
void mark_this_host(std::vector<Host>& hosts);

/// Sets Host::is_here by the hosts' addresses, if the system knows them. Merges hosts that have an
/// address in common: their slots add up, the first name stays, and `warnings` names them. Leaves
/// names with a user before them apart. May ask the network, for a few seconds at most.
std::vector<Host> without_aliases(std::vector<Host> hosts, std::vector<std::string>& warnings);

/// One of these two. `by_ssh`: names of hosts are the system's.
std::vector<Host> known_hosts(std::vector<Host> hosts, bool by_ssh,
                              std::vector<std::string>& warnings);

}  // namespace kolo::run
