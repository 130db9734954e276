// Any schedule over messages, held until all ranks have come to it. Pure.
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

/// `schedule`, whose sends wait until all ranks have begun it: for collectives that go one way, as
/// a broadcast, whose sender would else run ahead of who comes late, and fill its memory with
/// messages that meet no receive there. Nothing else waits. ⌈log₂ size⌉ notices and as many awaits
/// a rank; all ranks have to do so.
Schedule meet_first(const Schedule& schedule);

}  // namespace kolo
