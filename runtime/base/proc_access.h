// Whether other processes of this user may open this one's files through /proc, as the ranks of a
// host open each other's memory. Any thread.
#pragma once

#include <string_view>

namespace kolo {

/// Why they may not, as "this process is in a user namespace that is not the host's, as containers
/// without root make one each"; empty: they may. Processes in one such namespace may, too, but no
/// process knows where its peers are.
std::string_view why_peers_cannot_open();

}  // namespace kolo
