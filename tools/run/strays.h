// Strays: processes that ranks have started on this host and that have left their process groups,
// e.g. by setsid. kolo-run becomes the parent of those that have no other. Used by kolo-run's main
// thread.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace kolo::run {

/// Descendants of this process that were started with `variable`, "NAME=value", in their
/// environment. Descendants of an agent lack it and may be meant to stay, e.g. a connection that
/// ssh shares.
std::vector<pid_t> strays_with(const std::string& variable);

}  // namespace kolo::run
