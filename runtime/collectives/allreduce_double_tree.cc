// Double binary tree. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: Sanders, Speck & Träff 2009, see double_tree.h.
//
// One tree reduces and broadcasts the first half of the vector, the other tree the second half.
// Both halves are pipelined in chunks. A chunk for p = 3 in the first tree (0 ─ 2 ─ 1):
//
//                rank 1 (leaf)        rank 2                    rank 0 (root)
//   up           A = in               slot = rank 1's A         slot = rank 2's A
//                send A to 2          A = slot + in             A = slot + in, scaled: the sum
//                                     send A to 0
//   down         get A from 2         get A from 0, send to 1   send A to 2
//                A → out              A → out                   A → out
//
// A rank sends and receives at most 2·count elements, because it has children in one tree only. A
// chunk takes 2·log₂ p messages from the last leaf and back; the other chunks of count/2 elements
// follow in the pipeline. Each element is summed once along its tree, so all ranks get the same
// bits. Leaves send inputs up, all other ranks partial sums.
//
// Scratch: pipeline slots, each with a chunk A and one receive slot for each child. A pipeline slot
// is reused when its chunk has come back down.
#include "runtime/collectives/allreduce_double_tree.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/double_tree.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr std::uint64_t kParts = 3;  ///< chunks of a pipeline slot: A, and one for each child

class DoubleTreeWriter {
 public:
  DoubleTreeWriter(int rank, int size, std::uint64_t count, const PipelineOptions& pipeline)
      : size_(size), tree_(size), builder_("allreduce_double_tree", rank, size, count) {
    const std::uint64_t granule =
        pipeline.chunk_elements % kCacheLineElements == 0 ? kCacheLineElements : 1;
    std::uint64_t most = 0;
    for (int t = 0; t < DoubleTree::kTrees; ++t) {
      nodes_.push_back(tree_.node_of(t, rank));
      const auto index = static_cast<std::uint64_t>(t);
      chunks_.emplace_back(split({0, count}, DoubleTree::kTrees, index, granule),
                           pipeline.chunk_elements);
      most = std::max<std::uint64_t>(most, chunks_.back().count());
      for (std::uint32_t i = 0; i < chunks_.back().count(); ++i)
        slot_elements_ = std::max(slot_elements_, chunks_.back()[i].length);
    }
    slot_elements_ = round_up(slot_elements_, granule);
    // A chunk comes back after this many messages, so as many chunks fill the way.
    const auto on_the_way = static_cast<std::uint64_t>(2 * tree_.height() + 2);
    pipeline_slots_ =
        std::min(most, std::max(on_the_way, static_cast<std::uint64_t>(pipeline.chunks_in_flight)));
    finished_.assign(DoubleTree::kTrees * pipeline_slots_, ScheduleBuilder::kNoStep);
  }

  Schedule write() && {
    const std::uint32_t rounds = std::max(chunks_[0].count(), chunks_[1].count());
    KOLO_CHECK(rounds < UINT32_MAX / (2 * DoubleTree::kTrees));  // tags are 32 bits wide
    if (size_ > 1)
      builder_.need_scratch(DoubleTree::kTrees * pipeline_slots_ * kParts * slot_elements_);
    for (std::uint32_t i = 0; i < rounds; ++i)
      for (int t = 0; t < DoubleTree::kTrees; ++t) {
        const Interval part = chunks_[static_cast<std::size_t>(t)][i];
        if (part.length == 0) continue;
        if (size_ == 1) {
          builder_.copy(input_at(part), {output_at(part)}, Scaling::kBoth, {});
        } else {
          write_chunk(t, i, part);
        }
      }
    return std::move(builder_).finish();
  }

 private:
  /// A leaf sends its input up, all other ranks send a sum.
  bool is_leaf(int tree, int rank) const {
    const auto children = tree_.node_of(tree, rank).children;
    return children[0] < 0 && children[1] < 0;
  }
  void write_chunk(int tree, std::uint32_t index, Interval part);

  int size_;
  DoubleTree tree_;
  ScheduleBuilder builder_;
  std::vector<TreeNode> nodes_;  ///< this rank in each tree
  std::vector<Pieces> chunks_;   ///< by tree
  std::uint64_t slot_elements_ = 0;
  std::uint64_t pipeline_slots_ = 0;
  std::vector<StepId> finished_;  ///< by tree and pipeline slot: its last chunk has come back down
};

void DoubleTreeWriter::write_chunk(int tree, std::uint32_t index, Interval part) {
  const TreeNode& node = nodes_[static_cast<std::size_t>(tree)];
  const std::uint64_t pipeline_slot =
      static_cast<std::uint64_t>(tree) * pipeline_slots_ + index % pipeline_slots_;
  const auto in_pipeline_slot = [&](std::uint64_t slot) {
    return Operand{Space::kScratch, -1, (pipeline_slot * kParts + slot) * slot_elements_,
                   part.length};
  };
  const std::uint32_t up = (index * DoubleTree::kTrees + static_cast<std::uint32_t>(tree)) * 2;
  const std::uint32_t down = up + 1;
  const StepId gate = finished_[pipeline_slot];
  const Operand sum = in_pipeline_slot(0);
  const bool is_root = node.parent < 0;

  std::vector<StepId> last_steps;
  std::vector<StepId> ready = {gate};
  std::vector<Operand> sources;
  for (std::size_t c = 0; c < node.children.size(); ++c) {
    if (node.children[c] < 0) continue;
    sources.push_back(in_pipeline_slot(1 + c).as_partial(!is_leaf(tree, node.children[c])));
    ready.push_back(builder_.receive(node.children[c], up, sources.back(), {gate}));
  }
  StepId result = ScheduleBuilder::kNoStep;
  const Operand summed = sum.as_partial(!is_root && !sources.empty());
  if (sources.empty()) {
    result = builder_.copy(input_at(part), {sum}, Scaling::kPre, {gate});
  } else {
    sources.push_back(input_at(part));
    result =
        builder_.reduce(sources, {&summed, 1}, is_root ? Scaling::kBoth : Scaling::kPre, ready);
  }
  if (!is_root) {
    const StepId sent = builder_.send(node.parent, up, summed, {result});
    result = builder_.receive(node.parent, down, sum, {sent});
  }
  for (const int child : node.children)
    if (child >= 0) last_steps.push_back(builder_.send(child, down, sum, {result}));
  last_steps.push_back(builder_.copy(sum, {output_at(part)}, Scaling::kNone, {result}));
  // No step waits for the last chunks.
  if (index + pipeline_slots_ < chunks_[static_cast<std::size_t>(tree)].count())
    finished_[pipeline_slot] = builder_.join(last_steps);
}

}  // namespace

Schedule allreduce_double_tree(int rank, int size, std::uint64_t count,
                               const PipelineOptions& pipeline) {
  return DoubleTreeWriter(rank, size, count, pipeline).write();
}

}  // namespace kolo
