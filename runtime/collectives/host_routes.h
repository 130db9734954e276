// What the collectives over hosts that map their ranks' memory share: which rank of a host carries
// what over the network, and the lanes of the windows inside a host. Used by the algorithms beside
// it.
#pragma once

#include "runtime/base/check.h"
#include "runtime/collectives/host_layout.h"
#include "runtime/collectives/pipeline.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace kolo {

struct HostsOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message between hosts
  int messages_in_flight = 4;               ///< of one direction
  /// What each rank's window holds, of all lanes: at least `size` elements a lane.
  std::uint64_t mapped_elements = 0;
  int lanes = 4;  ///< blocks that are in the windows at once
};

/// Hosts are a ring. What belongs to a host's k-th rank is carried on each other host by the rank
/// that is k-th there, or by the one that is where hosts have fewer: so every rank drives a share
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
  /// From this rank's host on.
  int host_after(int distance) const {
    const int size = hosts();
    return ((host_ + distance) % size + size) % size;
  }
  /// How far this host is behind another one, in the ring.
  int distance_from(int host) const { return (host_ - host + hosts()) % hosts(); }
  /// The ranks of this host, ascending.
  const std::vector<int>& locals() const { return layout_.members(host_); }
  const std::vector<int>& members_after(int distance) const {
    return layout_.members(host_after(distance));
  }
  /// The same without this rank, beginning behind it: so that not all turn to the same one first.
  const std::vector<int>& others() const { return others_; }

  int carrier_of_index(int host, std::size_t index) const {
    const auto& members = layout_.members(host);
    return members[index % members.size()];
  }
  /// Who carries on `host` what belongs to `rank`; on its own host that is itself.
  int carrier(int host, int rank) const {
    return carrier_of_index(host, index_[static_cast<std::size_t>(rank)]);
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
  std::vector<std::size_t> index_;  ///< by rank: which of its host's it is
};

/// Parts that lie end to end, one for each rank, each cut into pieces; a block is a piece of each.
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
  /// Empty where the part has fewer.
  Interval piece(std::uint64_t block, int rank) const { return pieces_[as_index(rank)][block]; }
  /// Where the piece is in the rank's part.
  Interval within_part(std::uint64_t block, int rank) const {
    const Interval whole = piece(block, rank);
    return {whole.begin - part(rank).begin, whole.length};
  }
  /// Of the message that the piece is.
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

/// The lanes of this host's windows: each block has one, with a place for each piece that its rank
/// offers the others, and is free again when all have read and what the rank itself did there is
/// over.
class HostLanes {
 public:
  HostLanes(ScheduleBuilder& builder, std::uint64_t places, std::uint64_t piece_elements,
            std::uint64_t blocks, int lanes)
      : builder_(builder),
        places_(places),
        piece_elements_(piece_elements),
        lanes_(std::min<std::uint64_t>(blocks, static_cast<std::uint64_t>(lanes))),
        free_(lanes_, ScheduleBuilder::kNoStep) {
    KOLO_CHECK(blocks * (places + 1) < UINT32_MAX);  // tags are 32 bits wide
  }

  std::uint64_t elements() const { return lanes_ * places_ * piece_elements_; }

  Operand own(std::uint64_t block, std::uint64_t place, std::uint64_t length) const {
    return {Space::kScratch, -1, offset(block, place), length};
  }
  /// Of another rank of the host, which may have the same in its input at `direct`.
  Operand of(int peer, std::uint64_t block, std::uint64_t place, std::uint64_t length,
             std::uint64_t direct = Operand::kNowhere) const {
    return {Space::kPeer, peer, offset(block, place), length, direct};
  }
  /// Before which a block's lane must not be written.
  StepId gate(std::uint64_t block) const { return free_[block % lanes_]; }

  /// After `written`: the place is `reader`'s to read.
  void offer(std::uint64_t block, std::uint64_t place, int reader, StepId written) {
    builder_.notify(reader, tag(block, place), {written});
    readers_.push_back(reader);
  }
  /// That `peer` has offered it.
  StepId arrival(std::uint64_t block, std::uint64_t place, int peer) {
    return builder_.await(peer, tag(block, place), {});
  }
  /// After `read`, which follows its arrival, the peer's place is no longer needed.
  void has_read(int peer, StepId read) { reads_of_[peer].push_back(read); }
  /// Nor is this rank's own lane needed before `step` is done.
  void hold(StepId step) { held_.push_back(step); }

  /// After all that is done with a block.
  void close(std::uint64_t block) {
    for (const auto& [peer, reads] : reads_of_)
      if (!reads.empty()) builder_.notify(peer, tag(block, places_), {builder_.join(reads)});
    reads_of_.clear();
    std::sort(readers_.begin(), readers_.end());
    readers_.erase(std::unique(readers_.begin(), readers_.end()), readers_.end());
    for (const int reader : readers_)
      held_.push_back(builder_.await(reader, tag(block, places_), {}));
    if (!held_.empty()) free_[block % lanes_] = builder_.join(held_);
    readers_.clear();
    held_.clear();
  }

 private:
  std::uint64_t offset(std::uint64_t block, std::uint64_t place) const {
    KOLO_CHECK(place < places_);
    return (block % lanes_ * places_ + place) * piece_elements_;
  }
  std::uint32_t tag(std::uint64_t block, std::uint64_t place) const {
    return static_cast<std::uint32_t>(block * (places_ + 1) + place);
  }

  ScheduleBuilder& builder_;
  std::uint64_t places_;  ///< of a lane
  std::uint64_t piece_elements_;
  std::uint64_t lanes_;
  std::vector<StepId> free_;                     ///< by lane
  std::map<int, std::vector<StepId>> reads_of_;  ///< of this block, by peer
  std::vector<int> readers_;                     ///< of this block
  std::vector<StepId> held_;                     ///< of this block
};

/// Of a part, at most, where a lane has so many places: whole cache lines if there is room.
inline std::uint64_t piece_of_lane(const HostsOptions& options, std::uint64_t places) {
  KOLO_CHECK(options.lanes > 0 && options.chunk_elements > 0);
  const std::uint64_t room =
      options.mapped_elements / static_cast<std::uint64_t>(options.lanes) / places;
  KOLO_CHECK(room > 0);
  const std::uint64_t piece = std::min(room, options.chunk_elements);
  return piece < kCacheLineElements ? piece : piece - piece % kCacheLineElements;
}

}  // namespace kolo
