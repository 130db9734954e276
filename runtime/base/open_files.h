// Raises the limit of a process's open files. Sockets to other ranks count against RLIMIT_NOFILE,
// which often starts at 1024. Any thread.
#pragma once

#include <cstddef>

namespace kolo {

/// Descriptors that a process needs besides its connections. With those of 32 ranks they are as
/// many as the kernel's first table of a process has.
inline constexpr std::size_t kOtherDescriptors = 192;

/// Raises the soft limit to `wanted` descriptors, at most to the hard limit. It never goes further,
/// because select() in this process cannot handle descriptors above 1023. Returns the new limit.
std::size_t make_room_for_files(std::size_t wanted);

}  // namespace kolo
