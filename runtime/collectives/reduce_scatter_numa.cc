// Reduce-scatter by NUMA nodes: the mirror image of allgather_numa. Pure; the progress token holder
// calls it through the schedule cache when an operation starts.
//
// A block is one piece of each part. On each other node, one rank carries a piece: it sums the
// inputs of its node into its window, where the piece's owner reads the sum. From block to block
// the ranks of a node take turns. One piece of rank 0 on nodes A = {0, 1} and B = {2, 3}:
//
//   rank 1           rank 3           rank 2, the carrier         rank 0
//   in → S(1)        in → S(3)
//   signal → 0       signal → 2
//                                     in + S(3) → S(2)
//                                     signal → 0
//                                                                 in + S(1) + S(2) → out
//
// An owner reads one sum of each other node, instead of the input of each of its ranks.
#include "runtime/collectives/reduce_scatter_numa.h"

#include "runtime/collectives/host_routes.h"
#include "runtime/collectives/split.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kolo {
namespace {

class NumaWriter {
 public:
  NumaWriter(int rank, const HostLayout& nodes, std::span<const std::uint64_t> counts,
             const MappedOptions& options)
      : rank_(rank),
        nodes_(nodes),
        routes_(rank, nodes),
        builder_("reduce_scatter_numa", rank, nodes.size(), sum_of(counts),
                 counts[static_cast<std::size_t>(rank)]),
        blocks_(counts, piece_of(nodes.size(), options)),
        pipeline_(builder_, static_cast<std::uint64_t>(nodes.size()),
                  piece_of(nodes.size(), options), blocks_.count(), options.pipeline_slots) {}

  Schedule write() && {
    if (blocks_.count() > 0) builder_.need_mapped_scratch(pipeline_.elements());
    for (block_ = 0; block_ < blocks_.count(); ++block_) {
      for (int k = 1; k <= nodes_.size(); ++k) {
        const int part = (rank_ + k) % nodes_.size();
        if (piece(part).length > 0) give(part);
      }
      pipeline_.close(block_);
    }
    return std::move(builder_).finish();
  }

 private:
  static std::uint64_t piece_of(int size, const MappedOptions& options) {
    const std::uint64_t room = options.block_elements / static_cast<std::uint64_t>(size);
    KOLO_CHECK(room > 0 && options.pipeline_slots > 0);
    return whole_lines(room);
  }

  Interval piece(int part) const { return blocks_.piece(block_, part); }
  int carrier(int node, int part) const { return routes_.carrier(node, part, block_); }
  /// The place of each part in a window's pipeline slot.
  static std::uint64_t place_of(int part) { return static_cast<std::uint64_t>(part); }

  /// This rank's share of the sum of a part's piece.
  void give(int part) {
    const int node = nodes_.host_of(rank_);
    if (part == rank_) return finish();
    const Operand window = pipeline_.own(block_, place_of(part), piece(part).length);
    const StepId gate = pipeline_.gate(block_);
    if (const int sums = carrier(node, part); sums != rank_) {
      pipeline_.offer(block_, place_of(part), sums,
                      builder_.stand_in(input_at(piece(part)), window, Scaling::kPre, {gate}));
      return;
    }
    Gathered inputs = inputs_of_node(part);
    inputs.arrived.push_back(gate);
    const Operand sum = window.as_partial();
    const StepId summed = builder_.reduce(inputs.sources, {&sum, 1}, Scaling::kPre, inputs.arrived);
    for (const int peer : routes_.others()) pipeline_.has_read(peer, summed);
    pipeline_.hold(summed);
    pipeline_.offer(block_, place_of(part), part, summed);
  }

  /// The result of this rank's piece.
  void finish() {
    Gathered all = inputs_of_node(rank_);
    std::vector<int> read = routes_.others();
    for (int node = 0; node < nodes_.hosts(); ++node) {
      if (node == nodes_.host_of(rank_)) continue;
      const int peer = carrier(node, rank_);
      all.sources.push_back(
          pipeline_.of(peer, block_, place_of(rank_), piece(rank_).length).as_partial());
      all.arrived.push_back(pipeline_.arrival(block_, place_of(rank_), peer));
      read.push_back(peer);
    }
    const Operand output = output_at(blocks_.within_part(block_, rank_));
    const StepId reduced = builder_.reduce(all.sources, {&output, 1}, Scaling::kBoth, all.arrived);
    for (const int peer : read) pipeline_.has_read(peer, reduced);
  }

  struct Gathered {
    std::vector<Operand> sources;
    std::vector<StepId> arrived;
  };
  /// The inputs of this node's ranks for a piece, in order of rank.
  Gathered inputs_of_node(int part) {
    Gathered inputs;
    for (const int local : routes_.locals()) {
      if (local == rank_) {
        inputs.sources.push_back(input_at(piece(part)));
        continue;
      }
      inputs.sources.push_back(
          pipeline_.of(local, block_, place_of(part), piece(part).length, piece(part).begin));
      inputs.arrived.push_back(pipeline_.arrival(block_, place_of(part), local));
    }
    return inputs;
  }

  int rank_;
  const HostLayout& nodes_;
  HostRoutes routes_;
  ScheduleBuilder builder_;
  BlocksOfParts blocks_;
  HostPipeline pipeline_;
  std::uint64_t block_ = 0;  ///< the block that is being written
};

}  // namespace

Schedule reduce_scatter_numa(int rank, const HostLayout& nodes,
                             std::span<const std::uint64_t> counts, const MappedOptions& options) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(nodes.size()));
  return NumaWriter(rank, nodes, counts, options).write();
}

}  // namespace kolo
