// The fold: a world of any size as a power of two of members, for algorithms that double or halve.
// Used by the algorithms beside it. Idea: Thakur, Rabenseifner & Gropp 2005, "Optimization of
// collective communication operations in MPICH", §4.5; but the lower rank of a pair stays, so that
// members in order are ranks in order.
//
// p = 7, so q = 4 members and 3 pairs:
//
//   rank     0   1   2   3   4   5   6
//   member   0 ← ·   1 ← ·   2 ← ·   3      ← a folded rank has its partner act for it
//
// A member stands for one rank or two neighbours, and a run of members for a run of ranks.
#pragma once

#include "runtime/base/check.h"

#include <bit>

namespace kolo {

class Fold {
 public:
  Fold(int rank, int size)
      : rank_(rank),
        members_(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
        pairs_(size - members_) {
    KOLO_CHECK(rank >= 0 && rank < size);
  }

  int members() const { return members_; }
  /// Whether the partner acts for this rank.
  bool is_folded() const { return is_paired() && rank_ % 2 == 1; }
  /// Whether this rank acts for its partner.
  bool has_folded() const { return is_paired() && rank_ % 2 == 0; }
  /// Whether a member stands for two ranks.
  bool is_pair(int member) const { return member < pairs_; }
  /// The other rank of the pair.
  int partner() const { return rank_ ^ 1; }
  /// Which member this rank is; of a folded rank, which one acts for it.
  int member() const { return is_paired() ? rank_ / 2 : rank_ - pairs_; }
  /// The rank that is this member; of members(), the size of the world.
  int rank_of(int member) const { return member < pairs_ ? 2 * member : member + pairs_; }

 private:
  bool is_paired() const { return rank_ < 2 * pairs_; }

  int rank_;
  int members_;
  int pairs_;
};

}  // namespace kolo
