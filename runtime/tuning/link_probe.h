// Measures what messages cost, once, while the runtime starts and nothing else runs: two ranks of
// one host, and two of different hosts, send to each other, then all ranks at once. Every rank gets
// the same numbers. The thread that starts the runtime.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/collectives/algorithm.h"
#include "runtime/device/device.h"
#include "runtime/topology/world.h"
#include "transport/transport.h"

#include <functional>

namespace kolo {

struct LinkCosts {
  LinkCost inside;  ///< between ranks of one host; zeros where no host has two
  LinkCost across;  ///< between hosts; zeros where there is one
};

/// What ends the wait for a message of another rank.
struct ProbeLimits {
  const Abort& abort;
  Deadline deadline;
  std::function<Status()> losses;  ///< of ranks, asked now and then: a message tells of none
};

/// Collective over the world; 25 ms of messages a kind of link at most, or on a very slow one four
/// rounds of 128 KiB, four of 4 KiB and 55 of a byte. The pair stands for all links of its kind.
/// kTimeout and kPeerLost name the ranks.
Result<LinkCosts> probe_links(Bootstrap& bootstrap, Transport& transport, const World& world,
                              const Device& device, const ProbeLimits& limits);

/// Collective over the world, for ranks that know the costs already: opens the connections between
/// neighbours inside hosts, then those across, as probe_links() does. All ranks poll meanwhile;
/// left to the first operations, connections that both ends open at once may take UCX 1.13 a minute
/// over TCP. kTimeout and kPeerLost name the ranks.
Status open_links(Bootstrap& bootstrap, Transport& transport, const World& world,
                  const ProbeLimits& limits);

}  // namespace kolo
