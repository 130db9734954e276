// One message from one rank to another, in chunks.
#pragma once

#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/schedule.h"

namespace kolo {

/// `from` sends kInput, `to` receives it in kOutput; `count` elements, contiguous. With from = to a
/// copy. All other ranks have nothing to do and no memory.
Schedule point_to_point(int rank, int size, int from, int to, std::uint64_t count,
                        const PipelineOptions& options);

}  // namespace kolo
