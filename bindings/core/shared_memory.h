// Memory shared by the ranks of a host, for bindings that use their own memory if there is none.
// Any thread.
#pragma once

#include <kolo/export.h>

#include <cstddef>
#include <memory>

namespace kolo {

/// Like allocate(), but returns null if the ranks share no memory or if KOLO_ARENA has too little
/// left. The latter is logged once.
KOLO_API std::shared_ptr<void> allocate_if_shared(std::size_t bytes);

}  // namespace kolo
