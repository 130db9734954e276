// Plays the schedules of all ranks on a machine by discrete events, in simulated time. The same
// inputs give the same times, bit by bit. Called by kolo-simulate and tests; any thread.
//
// A rank has one core. It sends, takes what has arrived, sums and copies, one at a time, transfers
// first and steps that nobody waits for last, as the executor does. A message then waits for its
// link: a host's bandwidth in each direction goes from message to message in their order. A send
// is done when its last byte has left, a receive when it is posted and the message has been taken.
#pragma once

#include "tools/simulate/machine.h"
#include "tools/simulate/program.h"

#include <kolo/error.h>

#include <functional>

namespace kolo::simulate {

/// A rank's schedule. All ranks' together must be one collective.
using ScheduleOf = std::function<Schedule(int rank)>;

/// Moves of hosts under which all schedules may stay alike. Then one host stands for all of them.
enum class Symmetry : std::uint8_t {
  kNone,    ///< all ranks are played
  kTurn,    ///< host h becomes h + k, modulo the hosts: rings, pairwise exchange
  kMirror,  ///< host h becomes h XOR k, for a power of two of hosts: halving and doubling
};
std::string_view to_string(Symmetry symmetry);

/// `rank` after its host has been moved by `k`.
int moved(const Machine& machine, Symmetry symmetry, int rank, int k);

struct Played {
  double us = 0;            ///< until the last rank has ended
  std::uint64_t steps = 0;  ///< that were played
};

/// kInternal: a schedule sends what nobody receives, or waits for ever; the message names the rank
/// and the step. Precondition unless `symmetry` is kNone: the machine is uniform, and is_alike().
Result<Played> play(const Machine& machine, const ScheduleOf& schedule_of, Widths widths,
                    Symmetry symmetry = Symmetry::kNone);

/// Whether moved hosts have moved schedules: every move of up to 64 hosts, some of more hosts.
bool is_alike(const Machine& machine, const ScheduleOf& schedule_of, Widths widths,
              Symmetry symmetry);

}  // namespace kolo::simulate
