// Whether all hosts of a machine do the same, so that one can stand for all. Pure functions.
#pragma once

#include "tools/simulate/machine.h"
#include "tools/simulate/program.h"

#include <cstdint>
#include <functional>
#include <string_view>

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

/// Whether moved hosts have moved schedules: every move of up to 64 hosts, some of more hosts.
bool is_alike(const Machine& machine, const ScheduleOf& schedule_of, Widths widths,
              Symmetry symmetry);

}  // namespace kolo::simulate
