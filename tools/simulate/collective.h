// The time of one collective on a machine: makes the schedules as the runtime does, by route(),
// and plays them. Called by kolo-simulate and tests; any thread.
#pragma once

#include "tools/simulate/machine.h"
#include "tools/simulate/play.h"

#include <kolo/error.h>
#include <kolo/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kolo::simulate {

struct Call {
  OperationKind kind = OperationKind::kAllreduce;
  /// Each rank's; for an allgather and a reduce-scatter all ranks' parts together.
  std::uint64_t bytes = 0;
  DataType type = DataType::kFloat32;
  std::optional<Algorithm> algorithm = {};  ///< an all-reduce's; nothing: kolo's choice
};

struct Time {
  std::string schedule;  ///< Schedule::algorithm
  double us = 0;
  std::uint64_t bytes = 0;  ///< that were played; see time_of()
  Symmetry symmetry = Symmetry::kNone;
  std::uint64_t steps = 0;
};

/// Steps that are played at most: they take about a minute.
inline constexpr std::uint64_t kMostSteps = 90'000'000;

/// Plays all ranks, or one host for all where that is exact. Where neither the size nor the number
/// of ranks allows this, an all-reduce is played with as many more bytes as make all messages
/// equally long. kUnsupported: the schedules have more than `most_steps` steps even so.
Result<Time> time_of(const Machine& machine, const Call& call,
                     std::uint64_t most_steps = kMostSteps);

/// The algorithms that can carry an all-reduce on this machine.
std::vector<Algorithm> algorithms_of(const Machine& machine);
/// What kolo takes of them.
Algorithm choice_of(const Machine& machine, const Call& call);
/// By which it chooses; 0 for kMapped, which has no price.
double price_of(const Machine& machine, const Call& call, Algorithm algorithm);

}  // namespace kolo::simulate
