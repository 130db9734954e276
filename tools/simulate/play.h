// Plays the schedules of all ranks on a machine by discrete events, in simulated time. The same
// inputs give the same times, bit by bit. Called by kolo-simulate and tests; any thread.
//
// A rank has one core. It sends, takes what has arrived, sums and copies, one at a time, transfers
// first and steps that nobody waits for last, as the executor does. A message then waits for its
// link: a host's bandwidth in each direction goes from message to message in their order, and so
// does that of the links between switches, which a message passes after its latency. A send
// is done when its last byte has left, a receive when it is posted and the message has been taken.
#pragma once

#include "tools/simulate/machine.h"
#include "tools/simulate/program.h"
#include "tools/simulate/symmetry.h"

#include <kolo/error.h>

#include <cstdint>

namespace kolo::simulate {

struct Played {
  double us = 0;            ///< until the last rank has ended
  std::uint64_t steps = 0;  ///< that were played
};

/// kInternal: a schedule sends what nobody receives, or waits for ever; the message names the rank
/// and the step. Precondition unless `symmetry` is kNone: the machine is uniform, and is_alike().
Result<Played> play(const Machine& machine, const ScheduleOf& schedule_of, Widths widths,
                    Symmetry symmetry = Symmetry::kNone);

}  // namespace kolo::simulate
