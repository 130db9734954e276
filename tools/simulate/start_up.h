// Start-up on a machine: from the launcher's start until init() has returned on all ranks. Plays
// the exchanges of init over the store that the launcher, or rank 0, serves for all ranks. Called
// by kolo-simulate and tests; any thread.
#pragma once

#include "tools/simulate/machine.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace kolo::simulate {

/// What start-up takes of a core, in microseconds. Measured on the virtual machine of
/// docs/scale.md, with ranks that have no device.
struct StartUpCosts {
  // A process.
  double spawn = 5'000;     ///< the launcher of its host, one process after the other
  double process = 10'000;  ///< exec, libraries
  double network = 7'000;   ///< opening UCX
  double describe = 6'000;  ///< itself: its host, its cores
  double window = 2'000;    ///< making its window
  // A rank, for each rank to which it makes a way at once.
  double inside = 60;   ///< the way to one of its host, and mapping the window
  double across = 150;  ///< the way to one of another host
  // A rank, in each exchange, and for each rank of the world.
  double request = 30;
  double scan = 0.05;     ///< what that rank said
  double decode = 7;      ///< what that rank tells of itself: the handshake, tables, links
  double receive = 3e-4;  ///< a byte of an answer
  // The store, which is one thread.
  double meet = 22;      ///< a rank that connects and proves what it knows
  double serve = 10;     ///< a request and its answer
  double send = 1.8e-4;  ///< a byte of an answer, by whoever sends it
  double place = 15;     ///< telling a rank its place among linked ranks
  double poll = 0.05;    ///< each time it wakes, for each connection
  // Ranks that are linked.
  double link = 100;  ///< a link to a rank below
  double hop = 5;     ///< a message over it, without its bytes, at either end
  /// Rank 0, for each rank that connects to tell it of its end.
  double hear = 100;
  // Measuring links: the pair that does so, and each rank in a round of all, where ranks share
  // cores.
  double pair = 4'000;
  double turn_inside = 30;
  double turn_across = 60;
  /// Measuring how all-reduces go fastest, on one host with a core for each rank.
  double ways = 27'000;
};

struct StartUpPart {
  std::string_view name;    ///< as in the log of init
  double us = 0;            ///< until the last rank has ended it
  double store_us = 0;      ///< the store's work meanwhile
  std::uint64_t bytes = 0;  ///< that the store sends
};

/// `cores`: of each host; 0: one for each rank.
std::vector<StartUpPart> start_up_of(const Machine& machine, int cores = 0,
                                     const StartUpCosts& costs = {});

}  // namespace kolo::simulate
