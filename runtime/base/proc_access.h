// Whether other processes of this user may open this process's files through /proc: the ranks of a
// host open each other's memory this way. Any thread.
#pragma once

#include <string_view>

namespace kolo {

/// Why peers may not, such as "this process is in a user namespace that is not the host's, as …";
/// empty if they may. Processes that share such a namespace may, too, but no process knows the
/// namespaces of its peers.
std::string_view why_peers_cannot_open();

}  // namespace kolo
