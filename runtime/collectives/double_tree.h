// Two binary trees over the same ranks, in which a rank that has children in one has none in the
// other, so that both together use every rank's link in both directions. Pure; used by the
// algorithms beside it. Idea: Sanders, Speck & Träff, "Two-tree algorithms for full bandwidth
// broadcast, reduction and scan", Parallel Computing 35 (2009).
//
// The first tree is in order: of a range of ranks the one with most zeros at the end of its binary
// number is the root, and what lies on either side of it is a subtree. Odd ranks are leaves. p = 8:
//
//   0 ─ 4 ┬ 2 ┬ 1           The second one is its mirror image where p is even, so that odd ranks
//         │   └ 3           have the children, and where p is odd the same tree one rank further:
//         └ 6 ┬ 5           then one rank has children in both.
//             └ 7
#pragma once

#include "runtime/base/check.h"

#include <array>
#include <bit>

namespace kolo {

/// A rank's neighbours in one of the trees; −1: none.
struct TreePlace {
  int parent = -1;
  std::array<int, 2> children = {-1, -1};
};

class DoubleTree {
 public:
  static constexpr int kTrees = 2;

  explicit DoubleTree(int size) : size_(size) { KOLO_CHECK(size > 0); }

  TreePlace place_of(int tree, int rank) const {
    const int role = role_of(tree, rank);
    TreePlace place;
    for (int begin = 0, end = size_;;) {
      const int root = root_of(begin, end);
      if (root == role) {
        if (begin < root) place.children[0] = rank_of(tree, root_of(begin, root));
        if (root + 1 < end) place.children[1] = rank_of(tree, root_of(root + 1, end));
        return place;
      }
      place.parent = rank_of(tree, root);
      (role < root ? end : begin) = role < root ? root : root + 1;
    }
  }

  /// Edges from the root to the farthest leaf, at most.
  int height() const { return std::bit_width(static_cast<unsigned>(size_ - 1)); }

 private:
  bool mirrors() const { return size_ % 2 == 0; }
  int role_of(int tree, int rank) const {
    if (tree == 0) return rank;
    return mirrors() ? size_ - 1 - rank : (rank + size_ - 1) % size_;
  }
  int rank_of(int tree, int role) const {
    if (tree == 0) return role;
    return mirrors() ? size_ - 1 - role : (role + 1) % size_;
  }
  /// Of [begin, end), the number with most zeros at the end.
  static int root_of(int begin, int end) {
    int root = end - 1;
    while (root > 0 && (root & (root - 1)) >= begin) root &= root - 1;
    return root;
  }

  int size_;
};

}  // namespace kolo
