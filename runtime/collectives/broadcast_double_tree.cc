// Broadcast down a double binary tree. Pure; the progress token holder calls it through the
// schedule cache. Idea: Sanders, Speck & Träff 2009, see double_tree.h.
//
// The trees connect the first ranks of all chains but the root's. The root sends the first half of
// the tensor to the root of the first tree and the second half to that of the second, chunk by
// chunk. Chains {0, 1} {2, 3} {4, 5} {6, 7}:
//
//   first half    0 ─ 2 ─ 6 ─ 4             second half   0 ─ 4 ─ 2 ─ 6
//   both halves   0 ─ 1    2 ─ 3    4 ─ 5    6 ─ 7
//
// A rank that passes on one half to two chains is a leaf for the other half. So it receives count
// elements, sends at most as many to other chains and as many to the next rank of its own. The last
// chunk arrives after about log₂ of the chains, and the length of one, further messages. A window
// bounds how many messages are posted at a time in each direction.
#include "runtime/collectives/broadcast_double_tree.h"

#include "runtime/base/check.h"
#include "runtime/collectives/double_tree.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// What a rank does for one half.
struct Branch {
  struct Child {
    int rank;
    MessageWindow sends;
  };
  Pieces chunks;
  int parent;  ///< −1: this rank is the root
  MessageWindow receives;
  std::vector<Child> children = {};
};

}  // namespace

Schedule broadcast_double_tree(int rank, std::span<const std::vector<int>> chains,
                               std::uint64_t count, const PipelineOptions& options) {
  int size = 0;
  std::size_t own = 0;
  for (std::size_t i = 0; i < chains.size(); ++i) {
    size += static_cast<int>(chains[i].size());
    if (std::find(chains[i].begin(), chains[i].end(), rank) != chains[i].end()) own = i;
  }
  const std::vector<int>& chain = chains[own];
  const auto place = std::find(chain.begin(), chain.end(), rank);
  KOLO_CHECK(place != chain.end());
  const bool is_first = place == chain.begin();
  const bool is_root = is_first && own == 0;
  const auto first_of = [&](int node) {
    return chains[static_cast<std::size_t>(node + 1)].front();
  };
  const DoubleTree trees(std::max(static_cast<int>(chains.size()) - 1, 1));
  const std::uint64_t granule =
      options.chunk_elements % kCacheLineElements == 0 ? kCacheLineElements : 1;
  const MessageWindow window(options.chunks_in_flight);

  std::vector<Branch> branches;
  for (int tree = 0; tree < DoubleTree::kTrees; ++tree) {
    const Interval half =
        split({0, count}, DoubleTree::kTrees, static_cast<std::uint64_t>(tree), granule);
    Branch branch{.chunks = Pieces(half, options.chunk_elements), .parent = -1, .receives = window};
    if (is_root) {
      if (chains.size() > 1) branch.children.push_back({first_of(trees.root(tree)), window});
    } else if (is_first) {
      const TreeNode node = trees.node_of(tree, static_cast<int>(own) - 1);
      branch.parent = node.parent < 0 ? chains.front().front() : first_of(node.parent);
      for (const int child : node.children)
        if (child >= 0) branch.children.push_back({first_of(child), window});
    } else {
      branch.parent = *(place - 1);
    }
    if (place + 1 != chain.end()) branch.children.push_back({*(place + 1), window});
    branches.push_back(std::move(branch));
  }

  ScheduleBuilder builder("broadcast_double_tree", rank, size, count);
  const std::uint32_t most = std::max(branches[0].chunks.count(), branches[1].chunks.count());
  for (std::uint32_t i = 0; i < most; ++i)
    for (std::uint32_t tree = 0; tree < DoubleTree::kTrees; ++tree) {
      Branch& branch = branches[tree];
      const Interval part = branch.chunks[i];
      if (part.length == 0) continue;
      const std::uint32_t tag = DoubleTree::kTrees * i + tree;
      StepId here = ScheduleBuilder::kNoStep;
      if (is_root) {
        builder.copy(input_at(part), {output_at(part)}, Scaling::kNone, {});
      } else {
        here = builder.receive(branch.parent, tag, output_at(part), {branch.receives.gate()});
        branch.receives.push(here);
      }
      for (Branch::Child& child : branch.children)
        child.sends.push(builder.send(child.rank, tag, is_root ? input_at(part) : output_at(part),
                                      {here, child.sends.gate()}));
    }
  return std::move(builder).finish();
}

}  // namespace kolo
