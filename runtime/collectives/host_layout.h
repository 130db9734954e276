// HostLayout: which ranks of a communicator share a host, for algorithms that treat the two kinds
// of links differently. An immutable value that is cheap to copy; computed alike on all ranks. Made
// by whoever starts operations, read by the algorithms and their prices.
#pragma once

#include <memory>
#include <span>
#include <vector>

namespace kolo {

class HostLayout {
 public:
  /// No ranks.
  HostLayout() = default;
  /// `host_of[r]` is any number that ranks of one host share. Hosts are numbered by their lowest
  /// rank.
  explicit HostLayout(std::span<const int> host_of);

  int size() const { return data_ ? static_cast<int>(data_->host_of.size()) : 0; }
  int hosts() const { return data_ ? static_cast<int>(data_->members.size()) : 0; }
  int host_of(int rank) const { return data_->host_of[static_cast<std::size_t>(rank)]; }
  /// Ranks, ascending.
  const std::vector<int>& members(int host) const {
    return data_->members[static_cast<std::size_t>(host)];
  }
  /// The most ranks that a host has; 0 without ranks.
  int most_on_a_host() const { return data_ ? data_->most : 0; }
  /// Of the ring 0, 1, …, p−1, 0: the most edges that leave one host, which share its network.
  int ring_crossings() const { return data_ ? data_->crossings : 0; }

  friend bool operator==(const HostLayout& a, const HostLayout& b) {
    if (a.data_ == b.data_ || a.size() == 0) return a.size() == b.size();
    return b.size() > 0 && a.data_->host_of == b.data_->host_of;
  }

 private:
  struct Data {
    std::vector<int> host_of;
    std::vector<std::vector<int>> members;
    int most = 0;
    int crossings = 0;
  };
  std::shared_ptr<const Data> data_;
};

}  // namespace kolo
