// Room for a process's open files: sockets to other ranks count against RLIMIT_NOFILE, which is
// often 1024 at first. Any thread.
#pragma once

#include <cstddef>

namespace kolo {

/// Descriptors that a process has for other things than connections.
inline constexpr std::size_t kOtherDescriptors = 256;

/// Raises the soft limit as far as `wanted` descriptors take, and no further than the hard one:
/// select() in this process knows no descriptors above 1023. Returns the limit then.
std::size_t make_room_for_files(std::size_t wanted);

}  // namespace kolo
