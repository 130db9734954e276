// Memory that the ranks of a host share, for the bindings, which have memory of their own where
// there is none. Any thread.
#pragma once

#include <kolo/export.h>

#include <cstddef>
#include <memory>

namespace kolo {

/// As allocate(), but null where the ranks share no memory and where KOLO_ARENA has too little
/// left, which the log says once.
KOLO_API std::shared_ptr<void> allocate_if_shared(std::size_t bytes);

}  // namespace kolo
