// Strays: what ranks have started on this host that has left their process groups, as by setsid.
// kolo-run is its parent once it has no other. Used by kolo-run's main thread.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace kolo::run {

/// Those below this process that have `variable`, "NAME=value", in the environment that they were
/// started with: an agent's may have been meant to stay, as a connection that ssh shares.
std::vector<pid_t> strays_with(const std::string& variable);

}  // namespace kolo::run
