// Memory shared by the ranks of a host, for bindings that use their own memory if there is none,
// and how much of it is in use. Any thread.
#pragma once

#include <kolo/export.h>

#include <cstddef>
#include <memory>

namespace kolo {

/// Like allocate(), but returns null if the ranks share no memory or if KOLO_ARENA has too little
/// left. The latter is logged once.
KOLO_API std::shared_ptr<void> allocate_if_shared(std::size_t bytes);

/// Bytes in use of RuntimeInfo::arena_bytes and RuntimeInfo::device_arena_bytes.
KOLO_API std::size_t arena_bytes_used();
KOLO_API std::size_t device_arena_bytes_used();

}  // namespace kolo
