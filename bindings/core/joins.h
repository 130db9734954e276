// Counts completed joins. Objects that count steps together with other ranks restart after a join,
// because ranks that had joined have counted fewer. Any thread.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>

#include <cstdint>

namespace kolo {

/// Completed joins of a process set since init(). Between two joins the number is the same on all
/// ranks of the set. 0 if kolo does not run.
KOLO_API std::uint64_t joins_ended(const ProcessSet& set);

}  // namespace kolo
