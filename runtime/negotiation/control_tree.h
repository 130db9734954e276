// ControlTree: how negotiation messages travel between a communicator's rank 0 and the others: to
// and from at most `degree` neighbours of each rank. The ranks of one host are below one of them.
// If rank 0 can have all others as neighbours, it has: the tree is flat then. Immutable value.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/negotiation/place_bits.h"

#include <optional>
#include <utility>
#include <vector>

namespace kolo {

class ControlTree {
 public:
  /// Empty if this rank is not in the communicator. Precondition: degree ≥ 1.
  ControlTree(const Communicator& communicator, int degree);

  /// −1 for rank 0.
  int parent() const { return parent_; }
  const std::vector<int>& children() const { return children_; }
  /// Whether this rank passes on what others say: it is neither rank 0 nor at the end.
  bool is_between() const { return parent_ >= 0 && !children_.empty(); }
  /// This rank and those below it.
  int size() const { return size_; }

  /// A child and the ranks below it; nothing if the rank is not a child.
  std::optional<Places> below(int child) const;
  /// Precondition: 0 ≤ place < size().
  int rank_at(int place) const;
  /// The place of this rank, or of a rank below it; nothing for another.
  std::optional<int> place_of(int rank) const;

 private:
  int parent_ = -1;
  int size_ = 0;
  std::vector<int> children_;
  std::vector<Places> parts_;  ///< by child
  // Empty: the ranks are in order of their numbers from this one on.
  std::vector<int> ranks_;                   ///< by place
  std::vector<std::pair<int, int>> places_;  ///< ranks with their places, by rank
  int own_ = 0;
};

}  // namespace kolo
