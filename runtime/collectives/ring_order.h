// RingOrder: who follows whom in a ring. By number, or in any other order of the ranks, such as
// HostLayout::order(), by which a ring leaves each host once.
#pragma once

#include "runtime/base/check.h"

#include <algorithm>
#include <span>

namespace kolo {

class RingOrder {
 public:
  /// `order`: all ranks, to be kept as long as this; empty: by number.
  RingOrder(int rank, int size, std::span<const int> order)
      : size_(size), order_(order), place_(rank) {
    if (order.empty()) return;
    KOLO_CHECK(order.size() == static_cast<std::size_t>(size));
    place_ = static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin());
    KOLO_CHECK(place_ < size);
  }

  /// The rank so many places after this one; before it if negative, by at most one round.
  int after(int places) const {
    const int place = (place_ + places + size_) % size_;
    return order_.empty() ? place : order_[static_cast<std::size_t>(place)];
  }

 private:
  int size_;
  std::span<const int> order_;
  int place_;
};

}  // namespace kolo
