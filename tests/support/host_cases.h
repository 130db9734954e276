// Layouts of hosts on which the tests of the two-level algorithms prove their schedules.
// Header-only; used by tests/runtime/collectives.
#pragma once

#include "runtime/topology/host_layout.h"
#include "tests/support/proof_cases.h"

#include <cstddef>
#include <vector>

namespace kolo::test {

/// The host of each rank.
using Hosts = std::vector<int>;

inline Hosts blocks_of(const std::vector<int>& locals) {
  Hosts hosts;
  for (std::size_t h = 0; h < locals.size(); ++h)
    hosts.insert(hosts.end(), static_cast<std::size_t>(locals[h]), static_cast<int>(h));
  return hosts;
}

/// Ranks dealt out one by one, as `mpirun --map-by node` places them.
inline Hosts dealt(const std::vector<int>& locals) {
  Hosts hosts;
  for (int round = 0; round < 64; ++round)
    for (std::size_t h = 0; h < locals.size(); ++h)
      if (round < locals[h]) hosts.push_back(static_cast<int>(h));
  return hosts;
}

/// Number of elements that leave each host, by host.
inline Counts sent_across(const std::vector<Schedule>& schedules, const HostLayout& layout) {
  Counts sent(static_cast<std::size_t>(layout.hosts()), 0);
  for (const Schedule& schedule : schedules)
    for (const Step& step : schedule.steps) {
      if (step.kind != StepKind::kSend) continue;
      const int host = layout.host_of(schedule.rank);
      if (layout.host_of(step.peer) != host)
        sent[static_cast<std::size_t>(host)] += schedule.sources(step).front().length;
    }
  return sent;
}

}  // namespace kolo::test
