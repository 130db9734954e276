#include "tools/simulate/machine.h"

namespace kolo::simulate {
namespace {

/// Bytes that a sum of two operands reads and writes per byte of its result.
constexpr double kTrafficOfASum = 3;

LinkCost cost_of(const Link& link, const Machine& machine, int at_once) {
  const double way = link.latency_us + 2 * link.overhead_us;
  return {.latency_us = way,
          .us_per_byte = 1e-3 / link.gigabytes_per_second,
          .reduce_us_per_byte = kTrafficOfASum * 1e-3 / machine.core_gigabytes_per_second,
          .crowd_us = way / at_once};
}

}  // namespace

Resources resources_of(const Machine& machine) {
  std::vector<int> host_of;
  std::vector<int> node_of;
  for (int rank = 0; rank < machine.ranks(); ++rank) {
    host_of.push_back(machine.host_of(rank));
    node_of.push_back(machine.node_of(rank));
  }
  const bool shares = machine.ranks_per_host > 1;
  const bool one_host = machine.hosts == 1;
  return {.rank = 0,
          .size = machine.ranks(),
          .layout = HostLayout(host_of),
          .nodes = one_host && !machine.is_flat ? HostLayout(node_of) : HostLayout(),
          .maps_windows = one_host && shares && machine.window_bytes > 0,
          .slot_bytes = machine.window_bytes,
          .slot_bytes_over_hosts = shares && !one_host ? machine.window_bytes : 0};
}

Policy policy_of(const Machine& machine) {
  Policy policy;
  if (machine.ranks_per_host > 1) policy.inside = cost_of(machine.inside, machine, machine.ranks());
  if (machine.hosts > 1) policy.across = cost_of(machine.across, machine, machine.ranks());
  return policy;
}

}  // namespace kolo::simulate
