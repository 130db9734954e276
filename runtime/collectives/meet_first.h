// Holds the sends of a message schedule until all ranks have started it. Pure.
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

/// Returns `schedule` with sends that wait until all ranks have started it. For one-way collectives
/// like broadcast: a sender could run ahead of a late rank and fill its memory with unexpected
/// messages. Only sends wait. Each rank adds ⌈log₂ size⌉ signals and as many waits. All ranks must
/// do this together.
Schedule meet_first(const Schedule& schedule);

}  // namespace kolo
