// MappedLanes: how the algorithms over mapped windows, all but the all-reduce, hand data from rank
// to rank. Each rank offers parts of its input, block by block, in a lane of its scratch; whoever
// wants them reads them there and says so, and then the lane is free for a later block. Where an
// owner's input is memory that the others have mapped, they read it there instead and nothing is
// copied to the lane (Operand::direct); each rank decides that for itself. Used by the algorithms
// beside it.
//
//   owner                                  reader
//   wait until the lane is free
//   pack    in[part] → lane
//   notify  2b            →                await 2b
//                                          lane (or in[part]) → out
//   await   2b + 1        ←                notify 2b + 1
//   the lane is free, and at the last block the input and the scratch are the owner's again
//
// Nothing is sent but notices: two for each block, owner and reader.
#pragma once

#include "runtime/base/check.h"
#include "runtime/collectives/allreduce_mapped.h"
#include "runtime/collectives/pipeline.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace kolo {

class MappedLanes {
 public:
  /// Of an operation of so many blocks, the same on all ranks.
  MappedLanes(ScheduleBuilder& builder, int rank, std::uint64_t blocks,
              const MappedOptions& options)
      : builder_(builder),
        rank_(rank),
        lane_elements_(options.block_elements),
        lanes_(std::min<std::uint64_t>(blocks, static_cast<std::uint64_t>(options.lanes))),
        free_(lanes_, ScheduleBuilder::kNoStep) {
    KOLO_CHECK(options.block_elements > 0 && options.lanes > 0);
    KOLO_CHECK(blocks * 2 < UINT32_MAX);  // tags are 32 bits wide
    if (blocks > 0) builder_.need_mapped_scratch(lanes_ * lane_elements_);
  }

  /// Offers a part of the input, `offset` into the block's lane, to these ranks.
  void offer(std::uint64_t block, std::uint64_t offset, Interval part, Scaling scaling,
             std::span<const int> readers) {
    const StepId packed =
        builder_.stand_in(input_at(part), lane(block, rank_, offset, part), scaling, {gate(block)});
    for (const int reader : readers) {
      builder_.notify(reader, offered_tag(block), {packed});
      readers_.push_back(reader);
    }
  }

  /// What `owner` offers there, once it has arrived.
  Operand offered(std::uint64_t block, int owner, std::uint64_t offset, Interval part) const {
    return lane(block, owner, offset, part);
  }
  StepId arrival(std::uint64_t block, int owner) {
    return builder_.await(owner, offered_tag(block), {});
  }
  /// Tells the owner that `read`, which follows its arrival, is over.
  void has_read(std::uint64_t block, int owner, StepId read) {
    builder_.notify(owner, read_tag(block), {read});
  }

  /// After all offers of a block: from here on its lane is taken until all have read.
  void close(std::uint64_t block) {
    if (readers_.empty()) return;
    std::vector<StepId> read;
    for (const int reader : readers_) read.push_back(builder_.await(reader, read_tag(block), {}));
    free_[block % lanes_] = builder_.join(read);
    readers_.clear();
  }

 private:
  static std::uint32_t offered_tag(std::uint64_t block) {
    return static_cast<std::uint32_t>(block * 2);
  }
  static std::uint32_t read_tag(std::uint64_t block) { return offered_tag(block) + 1; }
  StepId gate(std::uint64_t block) const { return free_[block % lanes_]; }

  Operand lane(std::uint64_t block, int owner, std::uint64_t offset, Interval part) const {
    KOLO_CHECK(offset + part.length <= lane_elements_);
    const std::uint64_t begin = block % lanes_ * lane_elements_ + offset;
    return owner == rank_ ? Operand{Space::kScratch, -1, begin, part.length}
                          : Operand{Space::kPeer, owner, begin, part.length, part.begin};
  }

  ScheduleBuilder& builder_;
  int rank_;
  std::uint64_t lane_elements_;
  std::uint64_t lanes_;
  std::vector<StepId> free_;  ///< by lane: all have read what was in it last
  std::vector<int> readers_;  ///< of the block that is not closed yet, once for each offer
};

/// Each lane in stripes, one for every reader, where each rank has a part for each.
class Stripes {
 public:
  /// Requires block_elements ≥ size − 1.
  Stripes(int size, const MappedOptions& options) : size_(size) {
    const auto readers = static_cast<std::uint64_t>(std::max(size - 1, 1));
    length_ = options.block_elements / readers;
    if (length_ >= kCacheLineElements) length_ = length_ / kCacheLineElements * kCacheLineElements;
    KOLO_CHECK(length_ > 0);
  }

  /// The longest piece of a part that fits into one.
  std::uint64_t length() const { return length_; }
  std::uint64_t offset(int owner, int reader) const {
    return static_cast<std::uint64_t>((reader - owner + size_) % size_ - 1) * length_;
  }

 private:
  int size_;
  std::uint64_t length_ = 0;
};

}  // namespace kolo
