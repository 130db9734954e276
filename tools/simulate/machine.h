// Machine: the hosts and links that kolo-simulate plays schedules on, as plain numbers, and what
// kolo would know of them: the resources and measured links by which route() chooses. Pure values.
#pragma once

#include "runtime/planning/route.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kolo::simulate {

/// A message of n bytes takes overhead + latency + n / bandwidth + overhead. An overhead keeps the
/// sending or receiving rank's core busy.
struct Link {
  double latency_us = 0;
  double overhead_us = 0;
  double gigabytes_per_second = 0;
  /// Bytes that pass at once after a rest, as virtual machines' cards and traffic shapers let them.
  std::uint64_t burst_bytes = 0;
};

struct Machine {
  int hosts = 2;
  int ranks_per_host = 1;  ///< ranks are numbered host by host
  /// Between hosts. The ranks of a host share its bandwidth, in each direction.
  Link across = {.latency_us = 4, .overhead_us = 0.5, .gigabytes_per_second = 12.5};
  /// Hosts joined by one switch; 0: all are. Messages between switches share the links up and down,
  /// whose bandwidth is that of all its hosts' cards divided by `oversubscription`.
  int hosts_per_switch = 0;
  double oversubscription = 1;
  /// Messages between two ranks of a host. Each rank has the bandwidth, in each direction.
  Link inside = {.latency_us = 0.3, .overhead_us = 0.1, .gigabytes_per_second = 8};
  double core_gigabytes_per_second = 20;     ///< what a rank's sums and copies read and write
  double memory_gigabytes_per_second = 200;  ///< sums and copies of all ranks of a host together
  /// NUMA nodes of a host, each with an equal share of its ranks, in blocks, and of its memory.
  int numa_nodes = 1;
  /// What the ranks of a node together read and write in the memory of other nodes.
  double far_gigabytes_per_second = 20;
  bool is_flat = false;                ///< nothing goes by the nodes
  std::size_t window_bytes = 4 << 20;  ///< HostWindow::slot_bytes()
  /// A rank whose core takes `slow_factor` times as long for all it does; -1: none.
  int slow_rank = -1;
  double slow_factor = 1;
  /// Every latency and every time of a core grows by a random share of at most this.
  double jitter = 0;
  std::uint64_t seed = 1;

  int ranks() const { return hosts * ranks_per_host; }
  int host_of(int rank) const { return rank / ranks_per_host; }
  int node_of(int rank) const { return rank % ranks_per_host * numa_nodes / ranks_per_host; }
  bool has_switches() const { return hosts_per_switch > 0 && hosts_per_switch < hosts; }
  int switch_of(int rank) const { return host_of(rank) / hosts_per_switch; }
  /// Whether all hosts are alike, and every two of them as near.
  bool is_uniform() const { return slow_rank < 0 && jitter == 0 && !has_switches(); }
};

struct Preset {
  std::string_view name;
  Link across;
};
/// Assumed values of a network card with RDMA at this rate; not measured.
inline constexpr Preset kPresets[] = {
    {"100g", {.latency_us = 4, .overhead_us = 0.5, .gigabytes_per_second = 12.5}},
    {"400g", {.latency_us = 4, .overhead_us = 0.5, .gigabytes_per_second = 50}},
};

/// What route() takes of this machine on rank 0. The other ranks' differ in `rank` only.
Resources resources_of(const Machine& machine);
/// The links as probe_links() would measure them, and the defaults of the configuration.
Policy policy_of(const Machine& machine);

}  // namespace kolo::simulate
