// A receive whose sender is not known beforehand, for bindings (c10d's recvAnysource). Exported for
// them, not installed. Any thread.
#pragma once

#include <kolo/kolo.h>

#include <cstdint>
#include <memory>

namespace kolo {

/// As recv_async(), from whichever rank of the process set sends under this tag first. Once it is
/// done, outcome().value is the sender, a rank of the world.
KOLO_API std::shared_ptr<Work> recv_from_any_async(void* buffer, std::int64_t count, DataType type,
                                                   const MessageOptions& options);

}  // namespace kolo
