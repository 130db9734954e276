// HostLayout: which ranks of a communicator share a host, for algorithms that distinguish links
// inside hosts from links between hosts. An immutable value, cheap to copy, the same on all ranks.
// Made by the code that starts operations; read by the algorithms and their prices.
#pragma once

#include <memory>
#include <span>
#include <vector>

namespace kolo {

class HostLayout {
 public:
  /// No ranks.
  HostLayout() = default;
  /// `host_of[r]` is any number that all ranks of a host share. Hosts are numbered by their lowest
  /// rank. `numa_nodes[r]` is the NUMA node of a rank on its host; it may be missing.
  explicit HostLayout(std::span<const int> host_of, std::span<const int> numa_nodes = {});

  int size() const { return data_ ? static_cast<int>(data_->host_of.size()) : 0; }
  int hosts() const { return data_ ? static_cast<int>(data_->members.size()) : 0; }
  /// By rank.
  std::span<const int> host_of() const {
    return data_ ? std::span<const int>(data_->host_of) : std::span<const int>();
  }
  int host_of(int rank) const { return data_->host_of[static_cast<std::size_t>(rank)]; }
  /// Ranks, ascending.
  const std::vector<int>& members(int host) const {
    return data_->members[static_cast<std::size_t>(host)];
  }
  /// Ranks of the largest host; 0 without ranks.
  int most_on_a_host() const { return data_ ? data_->most : 0; }
  /// Upper bound of the parts that a rank carries, its own included; 0 without ranks. On a host of
  /// m ranks, the n-th carries the parts of the n-th, (n+m)-th, … rank of every host.
  int most_carried() const { return data_ ? data_->most_carried : 0; }
  /// The ranks ordered by host and NUMA node. A ring in this order leaves each host once and passes
  /// through each NUMA node once. Empty without ranks.
  std::span<const int> order() const {
    return data_ ? std::span<const int>(data_->order) : std::span<const int>();
  }
  /// Whether order() is the order of the rank numbers.
  bool is_in_order() const { return data_ == nullptr || data_->in_order; }

  friend bool operator==(const HostLayout& a, const HostLayout& b) {
    if (a.data_ == b.data_ || a.size() == 0) return a.size() == b.size();
    return b.size() > 0 && a.data_->host_of == b.data_->host_of && a.data_->order == b.data_->order;
  }

 private:
  struct Data {
    std::vector<int> host_of;
    std::vector<std::vector<int>> members;
    int most = 0;
    int most_carried = 0;
    std::vector<int> order;
    bool in_order = true;
  };
  std::shared_ptr<const Data> data_;
};

}  // namespace kolo
