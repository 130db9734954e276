// World: where every rank lives. All ranks compute the same value from the blobs of the bootstrap.
// Immutable value.
#pragma once

#include "runtime/topology/host_layout.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace kolo {

/// What a rank tells the others about itself.
struct RankInfo {
  std::string host_id;   ///< equal: same kernel and same IPC namespace (or KOLO_HOST_ID)
  std::string hostname;  ///< for people
  int pid = 0;
  std::string pid_namespace;  ///< pids are only valid within one namespace
  std::vector<int> cores;     ///< where it may run, as usable_cores() numbers them
  int numa_node = 0;          ///< HostLocation::numa_node
  std::string cpu_group;      ///< CpuLimit::group; empty: no limit
  int cpu_cores = 0;          ///< CpuLimit::cores, rounded down

  std::string serialize() const;
};

/// Fails on bytes that serialize() did not make.
bool parse_rank_info(const std::string& bytes, RankInfo& info);
/// Lays the ranks of each host in so many NUMA nodes, in blocks of equal size by local rank.
void impose_numa_nodes(std::vector<RankInfo>& ranks, int nodes);
/// This process. `host_id_override` is KOLO_HOST_ID, or empty.
RankInfo describe_this_process(const std::string& host_id_override);

class World {
 public:
  World() = default;
  /// `ranks[r]` describes rank r; hosts are numbered by their lowest rank.
  World(int rank, std::vector<RankInfo> ranks);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  /// Rank among the ranks of this host, in order of rank.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  /// Index of this host among the hosts that have a rank of this local_rank (Horovod's cross rank).
  int cross_rank() const { return cross_rank_; }
  int cross_size() const { return cross_size_; }

  /// Whether every rank of this machine can have a core of its own within its control group's
  /// limit, so that ranks may spin. Includes ranks that KOLO_HOST_ID sets apart.
  bool has_core_for_each_rank() const { return has_core_for_each_rank({rank_}); }
  /// As above, for the machine that the ranks `of` share; the same result on every rank.
  bool has_core_for_each_rank(const std::vector<int>& of) const;

  /// Number of cores that these ranks of one host may use together, within their control groups'
  /// limits; at least 1.
  int cores_of(const std::vector<int>& ranks) const;

  /// Which ranks share a host.
  const HostLayout& layout() const { return layout_; }
  /// layout() of some ranks, which are numbered in this order.
  HostLayout layout_of(const std::vector<int>& ranks) const;
  /// Which of some ranks of one host share a NUMA node, with nodes in the place of hosts.
  HostLayout nodes_of(const std::vector<int>& ranks) const;

  bool same_host(int a, int b) const { return layout_.host_of(a) == layout_.host_of(b); }
  /// A copy, made of what is kept once for all ranks that have it alike.
  RankInfo info(int rank) const;

 private:
  /// A RankInfo whose texts and cores lie in Shared. Of many ranks they would be most of what a
  /// rank knows of the others.
  struct Rank {
    const std::string* host_id;
    const std::string* hostname;
    const std::string* pid_namespace;
    const std::string* cpu_group;
    const std::vector<int>* cores;
    int pid;
    int numa_node;
    int cpu_cores;
  };
  struct Shared {
    std::set<std::string> texts;
    std::set<std::vector<int>> cores;
  };
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  int rank_ = 0;
  std::vector<Rank> ranks_;
  std::shared_ptr<const Shared> shared_;
  HostLayout layout_;
  int local_rank_ = 0;
  int local_size_ = 1;
  int cross_rank_ = 0;
  int cross_size_ = 1;
};

}  // namespace kolo
