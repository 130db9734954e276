// One message from one rank to another, in chunks.
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

namespace kolo {

/// `from` sends `count` elements of kInput, `to` receives them in kOutput. Both are contiguous.
/// from = to makes a copy. All other ranks do nothing and have no memory.
Schedule point_to_point(int rank, int size, int from, int to, std::uint64_t count,
                        const PipelineOptions& options);

}  // namespace kolo
