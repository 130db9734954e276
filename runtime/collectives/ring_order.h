// RingOrder: the order of the ranks in a ring. By number, or any other order, such as
// HostLayout::order(), in which a ring leaves each host once.
#pragma once

#include "runtime/base/check.h"

#include <algorithm>
#include <span>

namespace kolo {

class RingOrder {
 public:
  /// `order` lists all ranks and must outlive this object; empty: by number.
  RingOrder(int rank, int size, std::span<const int> order)
      : size_(size), order_(order), virtual_rank_(rank) {
    if (order.empty()) return;
    KOLO_CHECK(order.size() == static_cast<std::size_t>(size));
    virtual_rank_ = static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin());
    KOLO_CHECK(virtual_rank_ < size);
  }

  /// The rank `distance` after this one in the ring; before it if negative, by at most one round.
  int after(int distance) const {
    const int virtual_rank = (virtual_rank_ + distance + size_) % size_;
    return order_.empty() ? virtual_rank : order_[static_cast<std::size_t>(virtual_rank)];
  }

 private:
  int size_;
  std::span<const int> order_;
  int virtual_rank_;
};

}  // namespace kolo
