// One-pass allreduce over mapped scratch. Pure; the progress token holder calls it through the
// schedule cache when an operation starts. Idea: Li et al., "NUMA-aware shared-memory collective
// communication for MPI", HPDC 2013; Jain et al., "Framework for scalable intra-node collective
// operations using shared memory", SC 2018; MSCCL++'s two-shot allreduce.
//
// One block for p = 3. S(r)[c] is slice c in rank r's scratch; rank c owns slice c.
//
//                 rank 0                       rank 1                       rank 2
//   pack          in[1],in[2] → S(0)           in[0],in[2] → S(1)           in[0],in[1] → S(2)
//   signal 0      → 1, 2                       → 0, 2                       → 0, 1
//   reduce        in[0]+S(1)[0]+S(2)[0]        S(0)[1]+in[1]+S(2)[1]        S(0)[2]+S(1)[2]+in[2]
//                 → out[0], S(1)[0], S(2)[0]   → out[1], S(0)[1], S(2)[1]   → out[2], S(0)[2], …
//   signal 1      → 1, 2                       → 0, 2                       → 0, 1
//   unpack        S(0)[1],S(0)[2] → out        S(1)[0],S(1)[2] → out        S(2)[0],S(2)[1] → out
//
// Ranks that share a device would take turns on it. Therefore the first rank of each device sums
// for all of them (MappedOptions::owners), and the slices of the other ranks are empty.
//
// If the other ranks have mapped a rank's input, they read the input instead of S, and the rank
// packs nothing. If they have mapped its output, they write there, and it unpacks nothing
// (Operand::direct). Each rank decides this for itself. If all ranks have mapped both, every rank
// reads an element once and writes it once. A rank that knows that both are mapped
// (MappedOptions::direct) copies nothing and needs no pipeline slots: it sends all its signals 0 at
// once.
//
// Steps of a rank for each block: p−1 copies in, 1 reduce, p−1 copies out, 2(p−1) signals and as
// many waits. A rank copies 2·count·(p−1)/p elements; it never copies its own slice. No messages
// are sent, only signals.
//
// A rank may reuse a pipeline slot when it has unpacked: every other rank has then read its slice
// there (signal 1 follows its reduce). No rank touches the pipeline slot again until it is
// signalled that the next block is packed. So the operation needs no final barrier, and scratch may
// move between operations.
#include "runtime/collectives/allreduce_mapped.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/split.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace kolo {
namespace {

class MappedWriter {
 public:
  MappedWriter(int rank, int size, std::uint64_t count, const MappedOptions& options)
      : rank_(rank),
        size_(size),
        count_(count),
        pipeline_slot_elements_(options.block_elements),
        direct_(options.direct),
        owners_(options.owners),
        builder_("allreduce_mapped", rank, size, count) {
    KOLO_CHECK(options.block_elements > 0 && options.pipeline_slots > 0);
    if (owners_.empty()) {
      owners_.resize(static_cast<std::size_t>(size));
      std::iota(owners_.begin(), owners_.end(), 0);
    }
    const bool roomy = pipeline_slot_elements_ % kCacheLineElements == 0 &&
                       count >= static_cast<std::uint64_t>(size) * kCacheLineElements;
    granule_ = roomy ? kCacheLineElements : 1;
    blocks_ = count / pipeline_slot_elements_ + (count % pipeline_slot_elements_ != 0 ? 1 : 0);
    pipeline_slots_ =
        std::min<std::uint64_t>(blocks_, static_cast<std::uint64_t>(options.pipeline_slots));
  }

  Schedule write() && {
    KOLO_CHECK(blocks_ * 2 < UINT32_MAX);  // tags are 32 bits wide
    if (size_ > 1) {
      builder_.need_mapped_scratch(pipeline_slots_ * largest_block());
      finished_.assign(pipeline_slots_, ScheduleBuilder::kNoStep);
    }
    for (std::uint64_t block = 0; block < blocks_; ++block) {
      if (size_ == 1) {
        const Interval part = block_at(block);
        builder_.copy(input_at(part), {output_at(part)}, Scaling::kBoth, {});
      } else {
        write_block(block);
      }
    }
    return std::move(builder_).finish();
  }

 private:
  Interval block_at(std::uint64_t block) const {
    return split({0, count_}, blocks_, block, granule_);
  }
  std::uint64_t largest_block() const {
    return blocks_ == 0 ? 0 : std::min(pipeline_slot_elements_, round_up(count_, granule_));
  }

  Interval slice(Interval block, int owner) const {
    const auto found = std::lower_bound(owners_.begin(), owners_.end(), owner);
    if (found == owners_.end() || *found != owner) return {block.begin, 0};
    return split(block, owners_.size(), static_cast<std::uint64_t>(found - owners_.begin()),
                 granule_);
  }

  void write_block(std::uint64_t block);

  int rank_;
  int size_;
  std::uint64_t count_;
  std::uint64_t pipeline_slot_elements_;
  bool direct_;
  std::vector<int> owners_;
  ScheduleBuilder builder_;
  std::uint64_t granule_ = 1;
  std::uint64_t blocks_ = 0;
  std::uint64_t pipeline_slots_ = 0;
  std::vector<StepId> finished_;  ///< by pipeline slot: its last block is unpacked
};

void MappedWriter::write_block(std::uint64_t block) {
  const Interval whole = block_at(block);
  const std::uint64_t pipeline_slot = block % pipeline_slots_;
  const auto in_scratch = [&](int owner, Interval part) {
    const std::uint64_t offset = pipeline_slot * largest_block() + (part.begin - whole.begin);
    return owner == rank_ ? Operand{Space::kScratch, -1, offset, part.length}
                          : Operand{Space::kPeer, owner, offset, part.length, part.begin};
  };
  const auto packed_tag = static_cast<std::uint32_t>(block * 2);
  const std::uint32_t reduced_tag = packed_tag + 1;
  const Interval own = slice(whole, rank_);

  std::vector<StepId> packed;  // what this rank's reduce waits for
  std::vector<Operand> sources;
  std::vector<Operand> destinations;
  if (own.length > 0) destinations.push_back(output_at(own));
  // Start with the next rank, so that not all ranks wake the same rank first.
  for (int k = 1; k < size_; ++k) {
    const int peer = (rank_ + k) % size_;
    if (const Interval part = slice(whole, peer); part.length > 0) {
      const StepId ready = direct_ ? ScheduleBuilder::kNoStep
                                   : builder_.stand_in(input_at(part), in_scratch(rank_, part),
                                                       Scaling::kPre, {finished_[pipeline_slot]});
      builder_.signal(peer, packed_tag, {ready});
    }
    if (own.length > 0) {
      packed.push_back(builder_.wait(peer, packed_tag, {}));
      destinations.push_back(in_scratch(peer, own));
    }
  }
  StepId reduced = ScheduleBuilder::kNoStep;
  if (own.length > 0) {
    for (int peer = 0; peer < size_; ++peer)
      sources.push_back(peer == rank_ ? input_at(own) : in_scratch(peer, own));
    reduced = builder_.reduce(sources, destinations, Scaling::kBoth, packed);
  }
  std::vector<StepId> unpacked = {reduced};
  for (int k = 1; k < size_; ++k) {
    const int peer = (rank_ + k) % size_;
    if (own.length > 0) builder_.signal(peer, reduced_tag, {reduced});
    if (const Interval part = slice(whole, peer); part.length > 0) {
      const StepId arrived = builder_.wait(peer, reduced_tag, {});
      if (direct_) continue;
      unpacked.push_back(
          builder_.stand_in(in_scratch(rank_, part), output_at(part), Scaling::kNone, {arrived}));
    }
  }
  // No step waits for the last blocks.
  if (!direct_ && block + pipeline_slots_ < blocks_)
    finished_[pipeline_slot] = builder_.join(unpacked);
}

}  // namespace

Schedule allreduce_mapped(int rank, int size, std::uint64_t count, const MappedOptions& options) {
  return MappedWriter(rank, size, count, options).write();
}

}  // namespace kolo
