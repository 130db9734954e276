// Removes files of UCX's shared memory, which stay in a folder if a process is killed before it has
// removed their names.
#pragma once

#include <string>

namespace kolo {

/// Removes this user's files of UCX's shared memory that no process of this machine, in whatever
/// container, still has open or mapped. Any thread; never fails.
void remove_ucx_leftovers(const std::string& folder);

}  // namespace kolo
