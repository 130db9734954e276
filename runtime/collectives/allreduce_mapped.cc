// One-pass allreduce over mapped scratch. Called through the schedule cache when an operation
// starts, by the holder of the progress token; pure. Idea: Li et al., "NUMA-aware shared-memory
// collective communication for MPI", HPDC 2013; Jain et al., "Framework for scalable intra-node
// collective operations using shared memory", SC 2018; MSCCL++'s two-shot allreduce.
//
// One block for p = 3; S(r)[c] is slice c of rank r's scratch, which belongs to rank c.
//
//                 rank 0                       rank 1                       rank 2
//   pack          in[1],in[2] → S(0)           in[0],in[2] → S(1)           in[0],in[1] → S(2)
//   notify 0      → 1, 2                       → 0, 2                       → 0, 1
//   reduce        in[0]+S(1)[0]+S(2)[0]        S(0)[1]+in[1]+S(2)[1]        S(0)[2]+S(1)[2]+in[2]
//                 → out[0], S(1)[0], S(2)[0]   → out[1], S(0)[1], S(2)[1]   → out[2], S(0)[2], …
//   notify 1      → 1, 2                       → 0, 2                       → 0, 1
//   unpack        S(0)[1],S(0)[2] → out        S(1)[0],S(1)[2] → out        S(2)[0],S(2)[1] → out
//
// Where ranks share one device, whose time they would take turns on, the first of each device sums
// for all of them (MappedOptions::owners): the others' slices are empty.
//
// Where a rank's input is memory that the others have mapped, they read it there instead of in S
// and it packs nothing; where its output is, they write there and it unpacks nothing
// (Operand::direct). Each rank decides that for itself. With both on all ranks an element is read
// once and written once by every rank. A rank that knows that it has both (MappedOptions::direct)
// copies nothing and keeps no lanes apart: its notices 0 all go out at once.
//
// Steps a block and rank: p−1 copies in, 1 reduce, p−1 copies out, 2(p−1) notices each way.
// Elements copied a rank: 2·count·(p−1)/p; a slice of one's own is never copied. Nothing is sent
// but notices.
//
// A rank's scratch is its own again when it has unpacked: every other rank has then read its slice
// (its notice 1 follows its reduce) and will not touch this lane until told that the next block is
// packed there. So no barrier ends the operation, and scratch may move between operations.
#include "runtime/collectives/allreduce_mapped.h"

#include "runtime/base/check.h"
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
        lane_elements_(options.block_elements),
        direct_(options.direct),
        owners_(options.owners),
        builder_("allreduce_mapped", rank, size, count) {
    KOLO_CHECK(options.block_elements > 0 && options.lanes > 0);
    if (owners_.empty()) {
      owners_.resize(static_cast<std::size_t>(size));
      std::iota(owners_.begin(), owners_.end(), 0);
    }
    const bool roomy = lane_elements_ % kCacheLineElements == 0 &&
                       count >= static_cast<std::uint64_t>(size) * kCacheLineElements;
    granule_ = roomy ? kCacheLineElements : 1;
    blocks_ = count / lane_elements_ + (count % lane_elements_ != 0 ? 1 : 0);
    lanes_ = std::min<std::uint64_t>(blocks_, static_cast<std::uint64_t>(options.lanes));
  }

  Schedule write() && {
    KOLO_CHECK(blocks_ * 2 < UINT32_MAX);  // tags are 32 bits wide
    if (size_ > 1) {
      builder_.need_mapped_scratch(lanes_ * largest_block());
      finished_.assign(lanes_, ScheduleBuilder::kNoStep);
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
    return blocks_ == 0 ? 0
                        : std::min(lane_elements_, (count_ + granule_ - 1) / granule_ * granule_);
  }

  Interval slice(Interval block, int owner) const {
    const auto place = std::lower_bound(owners_.begin(), owners_.end(), owner);
    if (place == owners_.end() || *place != owner) return {block.begin, 0};
    return split(block, owners_.size(), static_cast<std::uint64_t>(place - owners_.begin()),
                 granule_);
  }

  void write_block(std::uint64_t block);

  int rank_;
  int size_;
  std::uint64_t count_;
  std::uint64_t lane_elements_;
  bool direct_;
  std::vector<int> owners_;
  ScheduleBuilder builder_;
  std::uint64_t granule_ = 1;
  std::uint64_t blocks_ = 0;
  std::uint64_t lanes_ = 0;
  std::vector<StepId> finished_;  ///< by lane: its last block is unpacked
};

void MappedWriter::write_block(std::uint64_t block) {
  const Interval whole = block_at(block);
  const std::uint64_t lane = block % lanes_;
  const auto in_scratch = [&](int owner, Interval part) {
    const std::uint64_t offset = lane * largest_block() + (part.begin - whole.begin);
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
  // Beginning beside oneself, so that not all wake the same rank first.
  for (int k = 1; k < size_; ++k) {
    const int peer = (rank_ + k) % size_;
    if (const Interval part = slice(whole, peer); part.length > 0) {
      const StepId ready = direct_ ? ScheduleBuilder::kNoStep
                                   : builder_.stand_in(input_at(part), in_scratch(rank_, part),
                                                       Scaling::kPre, {finished_[lane]});
      builder_.notify(peer, packed_tag, {ready});
    }
    if (own.length > 0) {
      packed.push_back(builder_.await(peer, packed_tag, {}));
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
    if (own.length > 0) builder_.notify(peer, reduced_tag, {reduced});
    if (const Interval part = slice(whole, peer); part.length > 0) {
      const StepId arrived = builder_.await(peer, reduced_tag, {});
      if (direct_) continue;
      unpacked.push_back(
          builder_.stand_in(in_scratch(rank_, part), output_at(part), Scaling::kNone, {arrived}));
    }
  }
  // The last blocks have nobody who waits for them.
  if (!direct_ && block + lanes_ < blocks_) finished_[lane] = builder_.join(unpacked);
}

}  // namespace

Schedule allreduce_mapped(int rank, int size, std::uint64_t count, const MappedOptions& options) {
  return MappedWriter(rank, size, count, options).write();
}

}  // namespace kolo
