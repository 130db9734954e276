// SameHost: which names of hosts mean this one, and which mean the same. Used by kolo-run's main
// thread, before anything is started.
#pragma once

#include "tools/run/placement.h"

#include <string>
#include <vector>

namespace kolo::run {

/// Sets Host::is_here by the names alone.
void mark_this_host(std::vector<Host>& hosts);

/// The same by their addresses, where the system knows them, and makes one of those that have an
/// address in common, whose slots add up; the first name stays. `warnings` is told which. Names
/// with a user before them are left apart. May ask the network, for some seconds at most.
std::vector<Host> without_aliases(std::vector<Host> hosts, std::vector<std::string>& warnings);

}  // namespace kolo::run
