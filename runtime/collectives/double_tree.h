// Two binary trees over the same ranks. A rank that has children in one tree has none in the other,
// so both together use every rank's link in both directions. Pure; used by the algorithms in this
// folder. Idea: Sanders, Speck & Träff, "Two-tree algorithms for full bandwidth broadcast,
// reduction and scan", Parallel Computing 35 (2009).
//
// The first tree is in order: the root of a range of ranks is the number with the most trailing
// zero bits, and the ranks on either side of it are its subtrees. Odd ranks are leaves. p = 8:
//
//   0 ─ 4 ┬ 2 ┬ 1           For even p the second tree is the mirror image, in which odd ranks
//         │   └ 3           have the children. For odd p it is the same tree moved by one rank;
//         └ 6 ┬ 5           then one rank has children in both trees.
//             └ 7
#pragma once

#include "runtime/base/check.h"

#include <array>
#include <bit>

namespace kolo {

/// A rank's neighbours in one of the trees; −1: none.
struct TreeNode {
  int parent = -1;
  std::array<int, 2> children = {-1, -1};
};

class DoubleTree {
 public:
  static constexpr int kTrees = 2;

  explicit DoubleTree(int size) : size_(size) { KOLO_CHECK(size > 0); }

  TreeNode node_of(int tree, int rank) const {
    const int role = role_of(tree, rank);
    TreeNode node;
    for (int begin = 0, end = size_;;) {
      const int root = root_of(begin, end);
      if (root == role) {
        if (begin < root) node.children[0] = rank_of(tree, root_of(begin, root));
        if (root + 1 < end) node.children[1] = rank_of(tree, root_of(root + 1, end));
        return node;
      }
      node.parent = rank_of(tree, root);
      (role < root ? end : begin) = role < root ? root : root + 1;
    }
  }

  int root(int tree) const { return rank_of(tree, 0); }
  /// Upper bound of the edges from the root to the farthest leaf.
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
  /// The number in [begin, end) with the most trailing zero bits.
  static int root_of(int begin, int end) {
    int root = end - 1;
    while (root > 0 && (root & (root - 1)) >= begin) root &= root - 1;
    return root;
  }

  int size_;
};

}  // namespace kolo
