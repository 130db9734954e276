// How a two-level allreduce cuts its elements, and where they lie in the scratch. Several blocks
// are in flight, each in a pipeline slot of the scratch. A block has slices; one rank of every host
// owns each slice. A slice has one chunk for each host. Pure; used by allreduce_hierarchical only.
#pragma once

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/split.h"
#include "runtime/topology/host_layout.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace kolo {

class HostSlices {
 public:
  struct Limits {
    std::uint64_t chunk_elements = 64 << 10;
    std::uint64_t pipeline_slots = 4;
    std::uint64_t mapped_elements = 0;  ///< elements of all pipeline slots; 0: no windows
    bool staged = false;                ///< see HierarchicalOptions
    std::vector<int> owners = {};       ///< see HierarchicalOptions
  };

  HostSlices(int rank, const HostLayout& layout, std::uint64_t count, const Limits& limits)
      : rank_(rank),
        count_(count),
        hosts_(static_cast<std::uint64_t>(layout.hosts())),
        mapped_(limits.mapped_elements > 0),
        staged_(limits.staged),
        granule_(limits.chunk_elements % kCacheLineElements == 0 ? kCacheLineElements : 1) {
    for (int host = 0; host < layout.hosts(); ++host) {
      locals_.push_back(layout.members(host));
      owners_.push_back(limits.owners.empty() ? locals_.back()
                                              : common(locals_.back(), limits.owners));
      KOLO_CHECK(!owners_.back().empty());
      slices_ = std::max<std::uint64_t>(slices_, owners_.back().size());
    }
    host_ = static_cast<std::uint64_t>(layout.host_of(rank));
    lay_out(limits);
  }

  std::uint64_t blocks() const { return blocks_; }
  std::uint64_t slices() const { return slices_; }
  std::uint64_t pipeline_slots() const { return pipeline_slots_; }
  std::uint64_t scratch_elements() const {
    return blocks_ == 0 ? 0 : pipeline_slots_ * pipeline_slot_elements_;
  }
  std::uint64_t staging_elements() const {
    return blocks_ == 0 || !staged_ ? 0 : pipeline_slots_ * staging_slot_elements_;
  }

  const std::vector<int>& members(int host) const {
    return locals_[static_cast<std::size_t>(host)];
  }
  /// The ranks of this rank's host.
  const std::vector<int>& locals() const { return locals_[host_]; }
  int owner(std::uint64_t host, std::uint64_t slice) const {
    const auto& owners = owners_[host % hosts_];
    return owners[slice * owners.size() / slices_];
  }

  Interval block_at(std::uint64_t block) const {
    return split({0, count_}, blocks_, block, granule_);
  }
  Interval slice_at(std::uint64_t block, std::uint64_t slice) const {
    return split(block_at(block), slices_, slice, granule_);
  }
  /// One chunk for each host; some may be empty.
  std::vector<Interval> chunks_of(Interval slice) const {
    std::vector<Interval> chunks;
    for (std::uint64_t c = 0; c < hosts_; ++c) chunks.push_back(split(slice, hosts_, c, granule_));
    return chunks;
  }

  /// Offset of a range of the block within its pipeline slot: in the staging memory if that is used
  /// without windows, else in the scratch.
  std::uint64_t offset_of(std::uint64_t block, Interval part) const {
    const std::uint64_t begin = staged_ && !mapped_ ? staging_begin(block) : slot_begin(block);
    return begin + (part.begin - block_at(block).begin);
  }
  /// Offset of a part of an own slice in the staging memory.
  std::uint64_t sum_offset(std::uint64_t block, std::uint64_t slice, Interval part) const {
    if (!mapped_) return offset_of(block, part);
    return staging_begin(block) + index_of_own(slice) * slice_elements_ +
           (part.begin - slice_at(block, slice).begin);
  }
  /// Offset at which a chunk of an own slice is received in a round of the ring.
  std::uint64_t ring_slot(std::uint64_t block, std::uint64_t slice, int round) const {
    const std::uint64_t slot =
        index_of_own(slice) * kRingSlots + static_cast<std::uint64_t>(round) % kRingSlots;
    return slots_begin(block) + slot * chunk_elements_;
  }
  /// Offset at which another rank's input of an own slice is received, without windows.
  std::uint64_t input_slot(std::uint64_t block, std::uint64_t slice, std::uint64_t other) const {
    const std::uint64_t rings = most_owned(host_) * kRingSlots * chunk_elements_;
    const std::uint64_t slot = index_of_own(slice) * (locals().size() - 1) + other;
    return slots_begin(block) + rings + slot * slice_elements_;
  }

  static constexpr std::uint64_t kRingSlots = 2;

 private:
  /// Upper bound of a pipeline slot's elements in memory of the operation's own. With very many
  /// ranks the messages get shorter, so the memory does not grow.
  static constexpr std::uint64_t kMostOfAPipelineSlot = 4 << 20;

  std::uint64_t part_of(std::uint64_t whole, std::uint64_t parts) const {
    return round_up(ceil_div(whole, parts), granule_);
  }
  std::uint64_t slot_begin(std::uint64_t block) const {
    return block % pipeline_slots_ * pipeline_slot_elements_;
  }
  std::uint64_t staging_begin(std::uint64_t block) const {
    return block % pipeline_slots_ * staging_slot_elements_;
  }
  /// Where the receive slots for the network begin, behind the block's elements in a pipeline slot.
  std::uint64_t slots_begin(std::uint64_t block) const {
    if (!staged_) return slot_begin(block) + block_elements_;
    return staging_begin(block) + (mapped_ ? most_owned(host_) * slice_elements_ : block_elements_);
  }
  /// Upper bound of the slices that one rank of a host owns.
  std::uint64_t most_owned(std::uint64_t host) const {
    const std::uint64_t owners = owners_[host].size();
    return ceil_div(slices_, owners);
  }
  /// The numbers that both lists hold. Both are ascending.
  static std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
    std::vector<int> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return both;
  }
  /// Index of an own slice among all slices of this rank.
  std::uint64_t index_of_own(std::uint64_t slice) const {
    std::uint64_t index = 0;
    while (index < slice && owner(host_, slice - index - 1) == rank_) ++index;
    return index;
  }

  void set_block(std::uint64_t elements) {
    block_elements_ = round_up(elements, granule_);
    slice_elements_ = part_of(elements, slices_);
    chunk_elements_ = hosts_ == 1 ? 0 : part_of(slice_elements_, hosts_);
    // Take the maximum over all hosts, so that all hosts cut the same blocks.
    pipeline_slot_elements_ = staged_ ? block_elements_ : 0;
    staging_slot_elements_ = 0;
    for (std::uint64_t host = 0; host < hosts_; ++host) {
      const std::uint64_t inputs = mapped_ ? 0 : (locals_[host].size() - 1) * slice_elements_;
      const std::uint64_t slots = most_owned(host) * (kRingSlots * chunk_elements_ + inputs);
      const std::uint64_t sums = mapped_ ? most_owned(host) * slice_elements_ : block_elements_;
      if (staged_) {
        staging_slot_elements_ = std::max(staging_slot_elements_, sums + slots);
      } else {
        pipeline_slot_elements_ = std::max(pipeline_slot_elements_, block_elements_ + slots);
      }
    }
  }

  void lay_out(const Limits& limits) {
    KOLO_CHECK(limits.chunk_elements > 0 && limits.pipeline_slots > 0);
    const std::uint64_t room =
        mapped_ ? limits.mapped_elements / limits.pipeline_slots : kMostOfAPipelineSlot;
    const auto fits = [&](std::uint64_t elements) {
      set_block(elements);
      return (staged_ && !mapped_ ? staging_slot_elements_ : pipeline_slot_elements_) <= room &&
             staging_slot_elements_ <= kMostOfAPipelineSlot;
    };
    // If a window is small for so many hosts, the blocks get small.
    if (!fits(granule_)) granule_ = 1;
    KOLO_CHECK(fits(1));
    std::uint64_t block = std::min(limits.chunk_elements * slices_ * hosts_,
                                   std::max(round_up(count_, granule_), granule_));
    while (!fits(block)) block = std::max(granule_, round_down(block * 7 / 8, granule_));
    blocks_ = count_ / block + (count_ % block != 0 ? 1 : 0);
    pipeline_slots_ = std::clamp<std::uint64_t>(blocks_, 1, limits.pipeline_slots);
  }

  int rank_;
  std::uint64_t count_;
  std::uint64_t hosts_;
  std::uint64_t host_ = 0;
  std::uint64_t slices_ = 1;
  bool mapped_;
  bool staged_;
  std::uint64_t granule_;
  std::vector<std::vector<int>> locals_;  ///< ranks, by host
  std::vector<std::vector<int>> owners_;  ///< the ranks that own slices, by host
  std::uint64_t blocks_ = 0;
  std::uint64_t pipeline_slots_ = 1;
  std::uint64_t block_elements_ = 0, slice_elements_ = 0, chunk_elements_ = 0;  ///< largest ones
  std::uint64_t pipeline_slot_elements_ = 0, staging_slot_elements_ = 0;
};

}  // namespace kolo
