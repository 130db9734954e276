// Allgather and broadcast by NUMA nodes. Pure; the progress token holder calls it through the
// schedule cache when an operation starts. Idea: Li et al., "NUMA-aware shared-memory collective
// communication for MPI", HPDC 2013.
//
// A block is one piece of each part. On each other node, one rank carries a piece: it reads it in
// the owner's window, and offers it in its own. From block to block the ranks of a node take turns,
// so that all carry pieces of a broadcast. One piece of rank 0 on nodes A = {0, 1} and B = {2, 3}:
//
//   rank 0           rank 1           rank 2, the carrier      rank 3
//   in → S(0)
//   signal → 1, 2
//                    S(0) → out       S(0) → S(2), out
//                                     signal → 3
//                                                              S(2) → out
//
// A node reads each piece of another node once, instead of once for each of its ranks.
#include "runtime/collectives/allgather_numa.h"

#include "runtime/collectives/host_routes.h"
#include "runtime/collectives/split.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// The parts of an operation, by rank, and where they lie in the outputs.
struct Parts {
  std::vector<Interval> inputs;
  std::vector<Interval> outputs;
  std::uint64_t input_elements = 0;  ///< this rank's
  std::uint64_t output_elements = 0;
};

class NumaWriter {
 public:
  /// `held`: upper bound of the pieces of a block that one rank's window holds.
  NumaWriter(std::string algorithm, int rank, const HostLayout& nodes, Parts parts,
             std::uint64_t held, const MappedOptions& options)
      : rank_(rank),
        nodes_(nodes),
        parts_(std::move(parts)),
        builder_(std::move(algorithm), rank, nodes.size(), parts_.input_elements,
                 parts_.output_elements),
        piece_elements_(longest_piece(options, held)),
        blocks_(blocks_of(parts_, piece_elements_)),
        pipeline_(builder_, held, piece_elements_, blocks_, options.pipeline_slots),
        routes_(rank, nodes) {
    for (int part = 0; part < nodes.size(); ++part)
      if (parts_.inputs[static_cast<std::size_t>(part)].length > 0) owners_.push_back(part);
  }

  Schedule write() && {
    if (blocks_ > 0) builder_.need_mapped_scratch(pipeline_.elements());
    for (block_ = 0; block_ < blocks_; ++block_) {
      std::uint64_t place = 0;
      for (const int part : held_by(rank_)) hold(part, place++);
      for (const int peer : routes_.others()) read_from(peer);
      pipeline_.close(block_);
    }
    return std::move(builder_).finish();
  }

 private:
  static std::uint64_t longest_piece(const MappedOptions& options, std::uint64_t held) {
    KOLO_CHECK(options.pipeline_slots > 0);
    const std::uint64_t room = options.block_elements / held;
    KOLO_CHECK(room > 0);
    return whole_lines(room);
  }
  static std::uint64_t blocks_of(const Parts& parts, std::uint64_t piece_elements) {
    std::uint64_t blocks = 0;
    for (const Interval part : parts.inputs)
      blocks = std::max<std::uint64_t>(blocks, Pieces(part, piece_elements).count());
    return blocks;
  }

  /// The block's piece of a part, in the owner's input; empty if the part has fewer pieces.
  Interval piece(int part) const {
    return Pieces(parts_.inputs[static_cast<std::size_t>(part)], piece_elements_)[block_];
  }
  Operand in_output(int part) const {
    const auto owner = static_cast<std::size_t>(part);
    const Interval what = piece(part);
    return output_at(
        {parts_.outputs[owner].begin + what.begin - parts_.inputs[owner].begin, what.length});
  }
  int carrier(int node, int part) const { return routes_.carrier(node, part, block_); }

  /// The parts of which the rank's window holds a piece of this block, its own first.
  std::vector<int> held_by(int rank) const {
    std::vector<int> held;
    if (piece(rank).length > 0) held.push_back(rank);
    const int node = nodes_.host_of(rank);
    for (const int part : owners_)
      if (nodes_.host_of(part) != node && piece(part).length > 0 && carrier(node, part) == rank)
        held.push_back(part);
    return held;
  }

  /// Puts a piece into this rank's window, and offers it.
  void hold(int part, std::uint64_t place) {
    const Operand window = pipeline_.own(block_, place, piece(part).length);
    StepId written = ScheduleBuilder::kNoStep;
    if (part == rank_) {
      const Operand input = input_at(piece(part));
      written = builder_.stand_in(input, window, Scaling::kNone, {pipeline_.gate(block_)});
      builder_.copy(input, {in_output(part)}, Scaling::kNone, {written});
      for (int node = 0; node < nodes_.hosts(); ++node)
        if (node != nodes_.host_of(rank_))
          pipeline_.offer(block_, place, carrier(node, part), written);
    } else {
      written = builder_.copy(from(part, part, 0), {window, in_output(part)}, Scaling::kNone,
                              {pipeline_.arrival(block_, 0, part), pipeline_.gate(block_)});
      pipeline_.has_read(part, written);
      pipeline_.hold(written);
    }
    for (const int reader : routes_.others()) pipeline_.offer(block_, place, reader, written);
  }

  void read_from(int peer) {
    std::uint64_t place = 0;
    for (const int part : held_by(peer)) {
      const StepId arrived = pipeline_.arrival(block_, place, peer);
      pipeline_.has_read(peer, builder_.copy(from(peer, part, place++), {in_output(part)},
                                             Scaling::kNone, {arrived}));
    }
  }

  /// A piece in the window of `peer`, or in its input if it is the owner's.
  Operand from(int peer, int part, std::uint64_t place) const {
    const Interval what = piece(part);
    return pipeline_.of(peer, block_, place, what.length,
                        peer == part ? what.begin : Operand::kNowhere);
  }

  int rank_;
  const HostLayout& nodes_;
  Parts parts_;
  ScheduleBuilder builder_;
  std::uint64_t piece_elements_;
  std::uint64_t blocks_;
  HostPipeline pipeline_;
  HostRoutes routes_;
  std::vector<int> owners_;  ///< ranks whose parts have elements
  std::uint64_t block_ = 0;  ///< the block that is being written
};

}  // namespace

Schedule allgather_numa(int rank, const HostLayout& nodes, std::span<const std::uint64_t> counts,
                        const MappedOptions& options) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(nodes.size()));
  Parts parts{.outputs = end_to_end(counts),
              .input_elements = counts[static_cast<std::size_t>(rank)],
              .output_elements = sum_of(counts)};
  for (const std::uint64_t count : counts) parts.inputs.push_back({0, count});
  const auto held = static_cast<std::uint64_t>(nodes.most_carried());
  return NumaWriter("allgather_numa", rank, nodes, std::move(parts), held, options).write();
}

Schedule broadcast_numa(int rank, const HostLayout& nodes, int root, std::uint64_t count,
                        const MappedOptions& options) {
  std::vector<Interval> parts(static_cast<std::size_t>(nodes.size()));
  parts[static_cast<std::size_t>(root)] = {0, count};
  return NumaWriter("broadcast_numa", rank, nodes, {parts, parts, count, count}, /*held=*/1,
                    options)
      .write();
}

}  // namespace kolo
