// How many joins have ended: objects that count along with the other ranks begin anew then, since
// ranks that had joined have counted less. Any thread.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>

#include <cstdint>

namespace kolo {

/// Of a process set, since init(). Between the ends of two joins it is the same on all its ranks. 0
/// where kolo does not run.
KOLO_API std::uint64_t joins_ended(const ProcessSet& set);

}  // namespace kolo
