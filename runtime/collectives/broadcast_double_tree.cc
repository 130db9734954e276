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

/// Where a rank stands: its chain, and its index in the chain.
struct Place {
  std::size_t chain = 0;
  std::size_t index = 0;
  bool is_first() const { return index == 0; }
  bool is_root() const { return is_first() && chain == 0; }
};

Place place_of(int rank, std::span<const std::vector<int>> chains) {
  for (std::size_t i = 0; i < chains.size(); ++i) {
    const auto found = std::find(chains[i].begin(), chains[i].end(), rank);
    if (found != chains[i].end()) return {i, static_cast<std::size_t>(found - chains[i].begin())};
  }
  KOLO_CHECK(false);
  return {};
}

Branch branch_of(const Place& place, std::span<const std::vector<int>> chains, int tree,
                 const Pieces& chunks, const MessageWindow& window) {
  const DoubleTree trees(std::max(static_cast<int>(chains.size()) - 1, 1));
  const auto first_of = [&](int node) {
    return chains[static_cast<std::size_t>(node + 1)].front();
  };
  const std::vector<int>& chain = chains[place.chain];
  Branch branch{.chunks = chunks, .parent = -1, .receives = window};
  if (place.is_root()) {
    if (chains.size() > 1) branch.children.push_back({first_of(trees.root(tree)), window});
  } else if (place.is_first()) {
    const TreeNode node = trees.node_of(tree, static_cast<int>(place.chain) - 1);
    branch.parent = node.parent < 0 ? chains.front().front() : first_of(node.parent);
    for (const int child : node.children)
      if (child >= 0) branch.children.push_back({first_of(child), window});
  } else {
    branch.parent = chain[place.index - 1];
  }
  if (place.index + 1 < chain.size()) branch.children.push_back({chain[place.index + 1], window});
  return branch;
}

}  // namespace

Schedule broadcast_double_tree(int rank, std::span<const std::vector<int>> chains,
                               std::uint64_t count, const PipelineOptions& options) {
  int size = 0;
  for (const std::vector<int>& chain : chains) size += static_cast<int>(chain.size());
  const Place place = place_of(rank, chains);
  const std::uint64_t granule =
      options.chunk_elements % kCacheLineElements == 0 ? kCacheLineElements : 1;
  const MessageWindow window(options.chunks_in_flight);

  std::vector<Branch> branches;
  for (int tree = 0; tree < DoubleTree::kTrees; ++tree) {
    const Interval half =
        split({0, count}, DoubleTree::kTrees, static_cast<std::uint64_t>(tree), granule);
    branches.push_back(
        branch_of(place, chains, tree, Pieces(half, options.chunk_elements), window));
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
      if (place.is_root()) {
        builder.copy(input_at(part), {output_at(part)}, Scaling::kNone, {});
      } else {
        here = builder.receive(branch.parent, tag, output_at(part), {branch.receives.gate()});
        branch.receives.push(here);
      }
      for (Branch::Child& child : branch.children)
        child.sends.push(builder.send(child.rank, tag,
                                      place.is_root() ? input_at(part) : output_at(part),
                                      {here, child.sends.gate()}));
    }
  return std::move(builder).finish();
}

}  // namespace kolo
