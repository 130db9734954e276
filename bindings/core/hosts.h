// Which ranks share a host. Private to bindings; any thread.
#pragma once

#include <kolo/export.h>

#include <vector>

namespace kolo {

/// For each rank: the number of its host. Throws kShutdown before init().
KOLO_API std::vector<int> hosts_of_ranks();

}  // namespace kolo
