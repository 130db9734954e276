// The fold maps a world of any size to a power of two of members, for algorithms that halve or
// double. Used by the algorithms in this folder. Idea: Thakur, Rabenseifner & Gropp 2005,
// "Optimization of collective communication operations in MPICH", §4.5. Unlike there, the lower
// rank of a pair stays, so members in order are ranks in order.
//
// p = 7 makes q = 4 members and 3 pairs:
//
//   rank     0   1   2   3   4   5   6
//   member   0 ← ·   1 ← ·   2 ← ·   3      ← a folded rank's partner acts for it
//
// A member stands for one rank or two neighbours, and a range of members for a range of ranks.
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
  /// This rank's member; for a folded rank, the member that acts for it.
  int member() const { return is_paired() ? rank_ / 2 : rank_ - pairs_; }
  /// The (lower) rank of a member; the size of the world for members().
  int rank_of(int member) const { return member < pairs_ ? 2 * member : member + pairs_; }

 private:
  bool is_paired() const { return rank_ < 2 * pairs_; }

  int rank_;
  int members_;
  int pairs_;
};

}  // namespace kolo
