// Measures the cost of messages once, while the runtime starts and nothing else runs. Two ranks of
// one host and two of different hosts send to each other, then all ranks at once. Every rank gets
// the same numbers. Called by the thread that starts the runtime.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/collectives/algorithm.h"
#include "runtime/device/device.h"
#include "runtime/topology/world.h"
#include "transport/transport.h"

#include <functional>

namespace kolo {

struct LinkCosts {
  LinkCost inside;  ///< between ranks of one host; zeros if no host has two ranks
  LinkCost across;  ///< between hosts; zeros if there is only one
};

/// What ends the wait for another rank's message.
struct ProbeLimits {
  const Abort& abort;
  Deadline deadline;
  std::function<Status()>
      losses;  ///< asked now and then for lost ranks, because no message reports them
  std::function<Error(Error)>
      give_up;  ///< called when this rank fails, while its links are there; returns the reason
};

/// Collective over the world. Takes at most 25 ms of messages for each kind of link; on a very slow
/// link four rounds of 128 KiB, four of 4 KiB and 55 of one byte. One pair stands for all links of
/// its kind. kTimeout and kPeerLost name the ranks.
Result<LinkCosts> probe_links(Bootstrap& bootstrap, Transport& transport, const World& world,
                              const Device& device, const ProbeLimits& limits);

/// Collective over the world, for ranks that know the costs already: opens the connections between
/// neighbours inside hosts, then between hosts, as probe_links() does. All ranks poll meanwhile. If
/// the first operations opened them, UCX 1.13 over TCP could take a minute where both ends connect
/// at once. kTimeout and kPeerLost name the ranks.
Status open_links(Bootstrap& bootstrap, Transport& transport, const World& world,
                  const ProbeLimits& limits);

}  // namespace kolo
