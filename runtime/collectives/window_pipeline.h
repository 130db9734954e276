// WindowPipeline: how the algorithms over mapped windows, except the all-reduce, pass data between
// ranks. Each rank offers parts of its input, block by block, in a pipeline slot of its scratch.
// The readers read the parts there and signal the owner; then the pipeline slot is free for a later
// block. If the readers have mapped an owner's input, they read it there, and nothing is copied to
// the pipeline slot (Operand::direct). Each rank decides this for itself. Used by the algorithms in
// this folder.
//
//   owner                                  reader
//   wait until the pipeline slot is free
//   pack    in[part] → pipeline slot
//   signal  2b            →                wait 2b
//                                          pipeline slot (or in[part]) → out
//   wait    2b + 1        ←                signal 2b + 1
//   the pipeline slot is free; after the last block, so are the owner's input and scratch
//
// Only signals are sent: two for each block, owner and reader.
#pragma once

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/allreduce_mapped.h"
#include "runtime/collectives/pipeline.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace kolo {

class WindowPipeline {
 public:
  /// For an operation of `blocks` blocks, the same number on all ranks.
  WindowPipeline(ScheduleBuilder& builder, int rank, std::uint64_t blocks,
                 const MappedOptions& options)
      : builder_(builder),
        rank_(rank),
        pipeline_slot_elements_(options.block_elements),
        pipeline_slots_(
            std::min<std::uint64_t>(blocks, static_cast<std::uint64_t>(options.pipeline_slots))),
        free_(pipeline_slots_, ScheduleBuilder::kNoStep) {
    KOLO_CHECK(options.block_elements > 0 && options.pipeline_slots > 0);
    KOLO_CHECK(blocks * 2 < UINT32_MAX);  // tags are 32 bits wide
    if (blocks > 0) builder_.need_mapped_scratch(pipeline_slots_ * pipeline_slot_elements_);
  }

  /// Offers a part of the input to these ranks, at `offset` in the block's pipeline slot. Returns
  /// the step that packs it, which comes after step `after`.
  StepId offer(std::uint64_t block, std::uint64_t offset, Interval part, Scaling scaling,
               std::span<const int> readers, StepId after = ScheduleBuilder::kNoStep) {
    const StepId packed = builder_.stand_in(
        input_at(part), pipeline_slot(block, rank_, offset, part), scaling, {gate(block), after});
    for (const int reader : readers) {
      builder_.signal(reader, offered_tag(block), {packed});
      readers_.push_back(reader);
    }
    return packed;
  }

  /// The part that `owner` offers at `offset`. Read it after arrival().
  Operand offered(std::uint64_t block, int owner, std::uint64_t offset, Interval part) const {
    return pipeline_slot(block, owner, offset, part);
  }
  StepId arrival(std::uint64_t block, int owner) {
    return builder_.wait(owner, offered_tag(block), {});
  }
  /// Signals the owner that `read`, which follows arrival(), is done.
  void has_read(std::uint64_t block, int owner, StepId read) {
    builder_.signal(owner, read_tag(block), {read});
  }

  /// Call after all offers of a block. From then on its pipeline slot is taken until all readers
  /// are done.
  void close(std::uint64_t block) {
    if (readers_.empty()) return;
    std::vector<StepId> read;
    for (const int reader : readers_) read.push_back(builder_.wait(reader, read_tag(block), {}));
    free_[block % pipeline_slots_] = builder_.join(read);
    readers_.clear();
  }

 private:
  static std::uint32_t offered_tag(std::uint64_t block) {
    return static_cast<std::uint32_t>(block * 2);
  }
  static std::uint32_t read_tag(std::uint64_t block) { return offered_tag(block) + 1; }
  StepId gate(std::uint64_t block) const { return free_[block % pipeline_slots_]; }

  Operand pipeline_slot(std::uint64_t block, int owner, std::uint64_t offset, Interval part) const {
    KOLO_CHECK(offset + part.length <= pipeline_slot_elements_);
    const std::uint64_t begin = block % pipeline_slots_ * pipeline_slot_elements_ + offset;
    return owner == rank_ ? Operand{Space::kScratch, -1, begin, part.length}
                          : Operand{Space::kPeer, owner, begin, part.length, part.begin};
  }

  ScheduleBuilder& builder_;
  int rank_;
  std::uint64_t pipeline_slot_elements_;
  std::uint64_t pipeline_slots_;
  std::vector<StepId> free_;  ///< by pipeline slot: all ranks have read its last block
  std::vector<int> readers_;  ///< readers of the open block, once for each offer
};

/// Cuts each pipeline slot into stripes, one for each reader, for algorithms in which each rank has
/// a part for every other rank.
class Stripes {
 public:
  /// Requires block_elements ≥ size − 1.
  Stripes(int size, const MappedOptions& options) : size_(size) {
    const auto readers = static_cast<std::uint64_t>(std::max(size - 1, 1));
    length_ = whole_lines(options.block_elements / readers);
    KOLO_CHECK(length_ > 0);
  }

  /// Elements of a stripe: the longest piece of a part.
  std::uint64_t length() const { return length_; }
  std::uint64_t offset(int owner, int reader) const {
    return static_cast<std::uint64_t>((reader - owner + size_) % size_ - 1) * length_;
  }

 private:
  int size_;
  std::uint64_t length_ = 0;
};

/// Offers every other rank its piece of a block, if it has one. `pieces` is indexed by rank.
inline void offer_parts(WindowPipeline& pipeline, int rank, const Stripes& stripes,
                        std::span<const Pieces> pieces, std::uint64_t block, Scaling scaling) {
  const auto size = static_cast<int>(pieces.size());
  for (int k = 1; k < size; ++k) {
    const int to = (rank + k) % size;
    const Interval piece = pieces[static_cast<std::size_t>(to)][block];
    if (piece.length > 0) pipeline.offer(block, stripes.offset(rank, to), piece, scaling, {&to, 1});
  }
}

}  // namespace kolo
