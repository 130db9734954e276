// Two-level allreduce over mapped scratch. Pure; the progress token holder calls it through the
// schedule cache when an operation starts. Idea: Li et al., "NUMA-aware shared-memory collective
// communication for MPI", HPDC 2013.
//
// A block has as many slices as the largest node has ranks (or MappedOptions::owners); on each
// node, one rank owns each slice. A slice has one chunk for each node. One block on nodes A = {0,
// 1} and B = {2, 3}, from rank 0, which owns slice [0] on A and works with rank 2, its owner on B.
// S(r) is rank r's scratch.
//
//   pack       in[1] → S(0)                          for rank 1, which owns [1] on A
//   signal 0   → 1
//   reduce     in[0] + S(1)[0] → S(0)[0]             the sum of node A
//   signal 1   → 2
//   reduce     S(0)[0]a + S(2)[0]a → S(0), S(2)      chunk a, the result
//   signal 2   → 2                                   which writes chunk b here meanwhile
//   publish    S(0)[0] → out[0], S(1)[0]             once all its chunks are there
//   signal 3   → 1
//   unpack     S(0)[1] → out[1]
//
// Of N nodes with k ranks each, a rank reads and writes 2·count·(N−1)/(N·k) elements of other nodes
// for the sum; allreduce_mapped does so with k times as many. It sends 2(k−1) + 2(N−1) signals for
// a block instead of 2(N·k−1), but a block passes four signals instead of two.
//
// Peers use a rank's own memory instead of S where they have mapped it, as in allreduce_mapped. A
// pipeline slot is free for a later block when all steps of this rank for the block are done:
// others read what it has packed, and its sum, before they send what these steps wait for.
#include "runtime/collectives/allreduce_numa.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/split.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace kolo {
namespace {

class NumaWriter {
 public:
  NumaWriter(int rank, const HostLayout& nodes, std::uint64_t count, const MappedOptions& options)
      : rank_(rank),
        nodes_(nodes),
        node_(nodes.host_of(rank)),
        locals_(nodes.members(node_)),
        count_(count),
        builder_("allreduce_numa", rank, nodes.size(), count) {
    KOLO_CHECK(options.block_elements > 0 && options.pipeline_slots > 0);
    for (int node = 0; node < nodes.hosts(); ++node) {
      const std::vector<int>& members = nodes.members(node);
      std::vector<int> owners;
      std::set_intersection(members.begin(), members.end(), options.owners.begin(),
                            options.owners.end(), std::back_inserter(owners));
      owners_.push_back(owners.empty() ? members : std::move(owners));
      slices_ = std::max<std::uint64_t>(slices_, owners_.back().size());
    }
    const bool roomy = options.block_elements % kCacheLineElements == 0 &&
                       count >= static_cast<std::uint64_t>(nodes.size()) * kCacheLineElements;
    granule_ = roomy ? kCacheLineElements : 1;
    blocks_ = ceil_div(count, options.block_elements);
    KOLO_CHECK(blocks_ * slices_ * kPhases < UINT32_MAX);  // tags are 32 bits wide
    const auto slots = static_cast<std::uint64_t>(options.pipeline_slots);
    finished_.assign(std::min(blocks_, slots), ScheduleBuilder::kNoStep);
    slot_elements_ = std::min(options.block_elements, round_up(count, granule_));
  }

  Schedule write() && {
    if (blocks_ > 0) builder_.need_mapped_scratch(finished_.size() * slot_elements_);
    for (block_ = 0; block_ < blocks_; ++block_) write_block();
    return std::move(builder_).finish();
  }

 private:
  /// What a signal says; see above.
  enum Phase : std::uint32_t { kPacked, kSummed, kReduced, kPublished, kPhases };

  Interval whole() const { return split({0, count_}, blocks_, block_, granule_); }
  Interval chunk_of(Interval slice, int node) const {
    return split(slice, static_cast<std::uint64_t>(nodes_.hosts()),
                 static_cast<std::uint64_t>(node), granule_);
  }
  int owner(int node, std::uint64_t slice) const {
    const std::vector<int>& owners = owners_[static_cast<std::size_t>(node)];
    return owners[slice * owners.size() / slices_];
  }
  std::uint32_t tag(std::uint64_t slice, Phase phase) const {
    return static_cast<std::uint32_t>((block_ * slices_ + slice) * kPhases) + phase;
  }
  StepId& finished() { return finished_[block_ % finished_.size()]; }

  Operand in_scratch(int rank, Interval part, std::uint64_t direct = Operand::kNowhere) const {
    const std::uint64_t offset =
        block_ % finished_.size() * slot_elements_ + (part.begin - whole().begin);
    if (rank == rank_) return {Space::kScratch, -1, offset, part.length};
    return {Space::kPeer, rank, offset, part.length, direct};
  }

  void write_block() {
    last_steps_.clear();
    const auto self = static_cast<std::uint64_t>(std::find(locals_.begin(), locals_.end(), rank_) -
                                                 locals_.begin());
    // Start behind this rank, so that not all ranks wake the same rank first.
    for (std::uint64_t k = 1; k <= slices_; ++k) {
      const std::uint64_t slice = (self + k) % slices_;
      const Interval part = split(whole(), slices_, slice, granule_);
      if (part.length > 0 && owner(node_, slice) != rank_) hand_over(slice, part);
    }
    for (std::uint64_t slice = 0; slice < slices_; ++slice) {
      const Interval part = split(whole(), slices_, slice, granule_);
      if (part.length > 0 && owner(node_, slice) == rank_) own(slice, part);
    }
    // No step waits for the last blocks.
    if (block_ + finished_.size() < blocks_) finished() = builder_.join(last_steps_);
  }

  /// Gives the input of a slice to its owner on this node, and receives the result.
  void hand_over(std::uint64_t slice, Interval part) {
    const int to = owner(node_, slice);
    const Operand packed = in_scratch(rank_, part);
    const StepId ready = builder_.stand_in(input_at(part), packed, Scaling::kPre, {finished()});
    builder_.signal(to, tag(slice, kPacked), {ready});
    const StepId arrived = builder_.wait(to, tag(slice, kPublished), {});
    last_steps_.push_back(builder_.stand_in(packed, output_at(part), Scaling::kNone, {arrived}));
  }

  void own(std::uint64_t slice, Interval part) {
    const StepId summed = sum_of_node(slice, part);
    std::vector<StepId> complete = {summed};
    for (int node = 0; node < nodes_.hosts(); ++node) {
      const Interval chunk = chunk_of(part, node);
      if (chunk.length == 0) continue;
      if (node == node_) {
        complete.push_back(reduce(slice, chunk, summed));
      } else {
        const int peer = owner(node, slice);
        builder_.signal(peer, tag(slice, kSummed), {summed});
        complete.push_back(builder_.wait(peer, tag(slice, kReduced), {}));
      }
    }
    publish(slice, part, builder_.join(complete));
  }

  StepId sum_of_node(std::uint64_t slice, Interval part) {
    std::vector<Operand> sources;
    std::vector<StepId> packed = {finished()};
    for (const int local : locals_) {
      sources.push_back(local == rank_ ? input_at(part) : in_scratch(local, part, part.begin));
      if (local != rank_) packed.push_back(builder_.wait(local, tag(slice, kPacked), {}));
    }
    const Operand sum = in_scratch(rank_, part).as_partial();
    return builder_.reduce(sources, {&sum, 1}, Scaling::kPre, packed);
  }

  /// The result of this node's chunk, into the scratch of the slice's owners.
  StepId reduce(std::uint64_t slice, Interval chunk, StepId summed) {
    std::vector<Operand> sources;
    std::vector<Operand> destinations;
    std::vector<StepId> ready = {summed};
    for (int node = 0; node < nodes_.hosts(); ++node) {
      const int peer = owner(node, slice);
      destinations.push_back(in_scratch(peer, chunk));
      sources.push_back(destinations.back().as_partial());
      if (node != node_) ready.push_back(builder_.wait(peer, tag(slice, kSummed), {}));
    }
    const StepId reduced = builder_.reduce(sources, destinations, Scaling::kPost, ready);
    for (int node = 0; node < nodes_.hosts(); ++node)
      if (node != node_) builder_.signal(owner(node, slice), tag(slice, kReduced), {reduced});
    return reduced;
  }

  /// Gives the result of a slice to the ranks of this node.
  void publish(std::uint64_t slice, Interval part, StepId complete) {
    std::vector<Operand> destinations = {output_at(part)};
    for (const int local : locals_)
      if (local != rank_) destinations.push_back(in_scratch(local, part, part.begin));
    const StepId published =
        builder_.copy(in_scratch(rank_, part), destinations, Scaling::kNone, {complete});
    for (const int local : locals_)
      if (local != rank_) builder_.signal(local, tag(slice, kPublished), {published});
    last_steps_.push_back(published);
  }

  int rank_;
  const HostLayout& nodes_;
  int node_;
  const std::vector<int>& locals_;
  std::uint64_t count_;
  std::uint64_t slices_ = 1;
  std::vector<std::vector<int>> owners_;  ///< by node
  ScheduleBuilder builder_;
  std::uint64_t granule_ = 1;
  std::uint64_t blocks_ = 0;
  std::uint64_t slot_elements_ = 0;
  std::uint64_t block_ = 0;         ///< the block that is being written
  std::vector<StepId> last_steps_;  ///< last steps of this block
  std::vector<StepId> finished_;    ///< by pipeline slot: its last block is done
};

}  // namespace

Schedule allreduce_numa(int rank, const HostLayout& nodes, std::uint64_t count,
                        const MappedOptions& options) {
  return NumaWriter(rank, nodes, count, options).write();
}

}  // namespace kolo
