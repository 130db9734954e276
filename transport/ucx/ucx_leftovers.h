// What UCX's shared memory leaves in a folder of files where its process is killed before it has
// removed the name.
#pragma once

#include <string>

namespace kolo {

/// Removes this user's files of UCX's shared memory that no process of this machine has open or
/// mapped any more, in whatever container. Any thread; never fails.
void remove_ucx_leftovers(const std::string& folder);

}  // namespace kolo
