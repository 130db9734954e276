// What the two-level collectives over mapped memory share: which rank of a host carries which part
// over the network, and the pipeline slots of the windows inside a host. Algorithms by NUMA nodes
// use it with nodes in the place of hosts. Used by the algorithms in this folder.
#pragma once

#include "runtime/base/check.h"
#include "runtime/collectives/pipeline.h"
#include "runtime/topology/host_layout.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace kolo {

struct HostsOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message between hosts
  int messages_in_flight = 4;               ///< messages of one direction
  /// Elements of each rank's window, all pipeline slots together; at least `size` elements for each
  /// pipeline slot.
  std::uint64_t mapped_elements = 0;
  int pipeline_slots = 4;  ///< blocks that are in the windows at once
};

/// The hosts form a ring. On every other host, the k-th rank carries the parts of a host's k-th
/// rank; if that host has fewer ranks, its (k mod its ranks)-th does. So every rank drives a share
/// of the network.
class HostRoutes {
 public:
  HostRoutes(int rank, const HostLayout& layout)
      : layout_(layout), rank_(rank), host_(layout.host_of(rank)) {
    for (const int local : locals())
      if (local > rank) others_.push_back(local);
    for (const int local : locals())
      if (local < rank) others_.push_back(local);
    index_.resize(static_cast<std::size_t>(layout.size()));
    for (int host = 0; host < layout.hosts(); ++host) {
      std::size_t next = 0;
      for (const int member : layout.members(host))
        index_[static_cast<std::size_t>(member)] = next++;
    }
  }

  int hosts() const { return layout_.hosts(); }
  /// The host `distance` after this rank's host.
  int host_after(int distance) const {
    const int size = hosts();
    return ((host_ + distance) % size + size) % size;
  }
  /// How many hosts this one comes after `host` in the ring.
  int distance_from(int host) const { return (host_ - host + hosts()) % hosts(); }
  /// The ranks of this host, ascending.
  const std::vector<int>& locals() const { return layout_.members(host_); }
  const std::vector<int>& members_after(int distance) const {
    return layout_.members(host_after(distance));
  }
  /// The other ranks of this host, starting behind this rank, so that not all ranks address the
  /// same one first.
  const std::vector<int>& others() const { return others_; }

  int carrier_of_index(int host, std::size_t index) const {
    const auto& members = layout_.members(host);
    return members[index % members.size()];
  }
  /// The rank of `host` that carries the part of `rank`; on its own host `rank` itself. With
  /// `turn`, the ranks of another host take turns.
  int carrier(int host, int rank, std::uint64_t turn = 0) const {
    if (layout_.host_of(rank) == host) return rank;
    return carrier_of_index(host, index_[static_cast<std::size_t>(rank)] + turn);
  }
  /// Ranks of the host `distance` before this one whose parts `local` carries here, ascending.
  std::vector<int> carried_by(int local, int distance) const {
    std::vector<int> parts;
    for (const int rank : layout_.members(host_after(-distance)))
      if (carrier(host_, rank) == local) parts.push_back(rank);
    return parts;
  }
  std::vector<int> carried(int distance) const { return carried_by(rank_, distance); }
  /// HostLayout::most_carried().
  std::uint64_t most_carried() const { return static_cast<std::uint64_t>(layout_.most_carried()); }

 private:
  HostLayout layout_;
  int rank_;
  int host_;
  std::vector<int> others_;
  std::vector<std::size_t> index_;  ///< by rank: its index on its host
};

/// Parts that lie end to end, one for each rank, each cut into pieces. A block is one piece of each
/// part.
class BlocksOfParts {
 public:
  BlocksOfParts(std::span<const std::uint64_t> counts, std::uint64_t piece_elements)
      : parts_(end_to_end(counts)) {
    std::uint64_t tags = 0;
    for (const Interval part : parts_) {
      pieces_.emplace_back(part, piece_elements);
      first_tag_.push_back(tags);
      tags += pieces_.back().count();
      count_ = std::max<std::uint64_t>(count_, pieces_.back().count());
    }
    KOLO_CHECK(tags < UINT32_MAX);  // tags are 32 bits wide
  }

  std::uint64_t count() const { return count_; }
  Interval part(int rank) const { return parts_[as_index(rank)]; }
  /// Empty if the part has fewer pieces.
  Interval piece(std::uint64_t block, int rank) const { return pieces_[as_index(rank)][block]; }
  /// The piece's range within the rank's part.
  Interval within_part(std::uint64_t block, int rank) const {
    const Interval whole = piece(block, rank);
    return {whole.begin - part(rank).begin, whole.length};
  }
  /// Tag of the message that sends the piece.
  std::uint32_t tag(std::uint64_t block, int rank) const {
    return static_cast<std::uint32_t>(first_tag_[as_index(rank)] + block);
  }

 private:
  static std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }

  std::vector<Interval> parts_;
  std::vector<Pieces> pieces_;
  std::vector<std::uint64_t> first_tag_;
  std::uint64_t count_ = 0;
};

/// The pipeline slots of this host's windows. Each block uses one pipeline slot, with a slot for
/// each piece that its rank offers. The pipeline slot is free when all ranks have read the pieces
/// and this rank's own steps there are done.
class HostPipeline {
 public:
  HostPipeline(ScheduleBuilder& builder, std::uint64_t pieces, std::uint64_t piece_elements,
               std::uint64_t blocks, int pipeline_slots)
      : builder_(builder),
        pieces_(pieces),
        piece_elements_(piece_elements),
        pipeline_slots_(
            std::min<std::uint64_t>(blocks, static_cast<std::uint64_t>(pipeline_slots))),
        free_(pipeline_slots_, ScheduleBuilder::kNoStep) {
    KOLO_CHECK(blocks * (pieces + 1) < UINT32_MAX);  // tags are 32 bits wide
  }

  std::uint64_t elements() const { return pipeline_slots_ * pieces_ * piece_elements_; }

  Operand own(std::uint64_t block, std::uint64_t piece, std::uint64_t length) const {
    return {Space::kScratch, -1, offset(block, piece), length};
  }
  /// A piece in the window of `peer`, a rank of this host. The peer may have the same elements in
  /// its input at `direct`.
  Operand of(int peer, std::uint64_t block, std::uint64_t piece, std::uint64_t length,
             std::uint64_t direct = Operand::kNowhere) const {
    return {Space::kPeer, peer, offset(block, piece), length, direct};
  }
  /// The step after which a block's pipeline slot may be written.
  StepId gate(std::uint64_t block) const { return free_[block % pipeline_slots_]; }

  /// After `written`, `reader` may read the slot of a piece.
  void offer(std::uint64_t block, std::uint64_t piece, int reader, StepId written) {
    builder_.signal(reader, tag(block, piece), {written});
    readers_.push_back(reader);
  }
  /// The step that waits until `peer` has offered a piece.
  StepId arrival(std::uint64_t block, std::uint64_t piece, int peer) {
    return builder_.wait(peer, tag(block, piece), {});
  }
  /// After `read`, which follows the piece's arrival, this rank no longer needs the peer's slot.
  void has_read(int peer, StepId read) { reads_of_[peer].push_back(read); }
  /// This rank's own pipeline slot is not free before `step` is done.
  void hold(StepId step) { held_.push_back(step); }

  /// Call after all steps of a block.
  void close(std::uint64_t block) {
    for (const auto& [peer, reads] : reads_of_)
      if (!reads.empty()) builder_.signal(peer, tag(block, pieces_), {builder_.join(reads)});
    reads_of_.clear();
    std::sort(readers_.begin(), readers_.end());
    readers_.erase(std::unique(readers_.begin(), readers_.end()), readers_.end());
    for (const int reader : readers_)
      held_.push_back(builder_.wait(reader, tag(block, pieces_), {}));
    if (!held_.empty()) free_[block % pipeline_slots_] = builder_.join(held_);
    readers_.clear();
    held_.clear();
  }

 private:
  std::uint64_t offset(std::uint64_t block, std::uint64_t piece) const {
    KOLO_CHECK(piece < pieces_);
    return (block % pipeline_slots_ * pieces_ + piece) * piece_elements_;
  }
  std::uint32_t tag(std::uint64_t block, std::uint64_t piece) const {
    return static_cast<std::uint32_t>(block * (pieces_ + 1) + piece);
  }

  ScheduleBuilder& builder_;
  std::uint64_t pieces_;  ///< pieces of a pipeline slot
  std::uint64_t piece_elements_;
  std::uint64_t pipeline_slots_;
  std::vector<StepId> free_;                     ///< by pipeline slot
  std::map<int, std::vector<StepId>> reads_of_;  ///< reads of this block, by peer
  std::vector<int> readers_;                     ///< readers of this block
  std::vector<StepId> held_;                     ///< steps of this block
};

/// Upper bound of a piece's elements if a pipeline slot holds `pieces` pieces: whole cache lines if
/// there is room.
inline std::uint64_t piece_of_pipeline_slot(const HostsOptions& options, std::uint64_t pieces) {
  KOLO_CHECK(options.pipeline_slots > 0 && options.chunk_elements > 0);
  const std::uint64_t room =
      options.mapped_elements / static_cast<std::uint64_t>(options.pipeline_slots) / pieces;
  KOLO_CHECK(room > 0);
  return whole_lines(std::min(room, options.chunk_elements));
}

}  // namespace kolo
