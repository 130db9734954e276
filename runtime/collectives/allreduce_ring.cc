// Ring allreduce. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters
// of workstations", JPDC 69 (2009). Each block of p chunks is a small ring of its own, so the links
// of other blocks stay busy while one block reduces. A bidirectional ring sends every other block
// in the opposite direction, with virtual ranks counted backwards.
//
// One block for p = 3. Rank r sends to r+1 and receives from r−1; [c] is chunk c, + is a reduce.
//
//                       rank 0             rank 1             rank 2
//   reduce-scatter s=0  send [0]           send [1]           send [2]         copied from kInput
//                       [2] + own [2]      [0] + own [0]      [1] + own [1]    received + kInput
//                  s=1  send [2]           send [0]           send [1]
//                       [1] + own [1]      [2] + own [2]      [0] + own [0]    done: post scale
//   allgather      s=0  send [1] get [0]   send [2] get [1]   send [0] get [2] straight into D
//                  s=1  send [0] get [2]   send [1] get [0]   send [2] get [1]
//
// Steps of a rank for each block: 2(p−1) sends, 2(p−1) receives, p−1 reduces, 1 copy, 1 join, and p
// unpack copies if the placement is kPacked. A rank sends every chunk but one, twice: about
// 2·count·(p−1)/p elements, depending on the chunks' lengths. All ranks together send exactly
// 2·count·(p−1).
//
// The results live in D: kOutput (kInPlace) or the head of the scratch (kPacked). Behind D lie
// three receive slots for each block in flight. A partial sum stays in the slot where it was
// received and is sent from there, while the next one arrives and the previous one leaves. The
// reduce that first needs a chunk packs it; only the first chunk that is sent is copied. Most of
// the order within a block follows from the data. Only the write-after-read hazards need explicit
// dependencies. A receive into a slot waits for the send of its sum. An allgather receive into a
// chunk of D waits for the reduce-scatter's send of this chunk.
//
// The first message of a block is an input, the messages of the rounds s = 1 … p−2 are partial
// sums, and the allgather's are results.
#include "runtime/collectives/allreduce_ring.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/split.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr int kSlotsPerBlock = 3;

class RingWriter {
 public:
  RingWriter(int rank, int size, std::uint64_t count, const RingOptions& options)
      : rank_(rank),
        size_(size),
        count_(count),
        options_(options),
        builder_(options.bidirectional ? "allreduce_bidirectional_ring" : "allreduce_ring", rank,
                 size, count) {
    KOLO_CHECK(options.chunk_elements > 0 && options.blocks_in_flight > 0);
    const auto ranks = static_cast<std::uint64_t>(size);
    // A granule must not be longer than a chunk, nor make small chunks unequal.
    const bool roomy = count >= ranks * kCacheLineElements * 16;
    granule_ = roomy && options.chunk_elements % kCacheLineElements == 0 ? kCacheLineElements : 1;
    const std::uint64_t largest_block = options.chunk_elements * ranks;
    blocks_ = count / largest_block + (count % largest_block != 0 ? 1 : 0);
    // One block would use one direction only.
    if (options.bidirectional && blocks_ == 1 && count >= 2 * ranks * granule_) blocks_ = 2;
  }

  Schedule write() && {
    if (size_ == 1) {
      write_alone();
    } else {
      KOLO_CHECK(blocks_ * rounds() * 2 < UINT32_MAX);  // tags are 32 bits wide
      lay_out_slots();
      for (std::uint64_t block = 0; block < blocks_; ++block) write_block(block);
    }
    return std::move(builder_).finish();
  }

 private:
  static constexpr StepId kNoStep = ScheduleBuilder::kNoStep;

  bool goes_back(std::uint64_t block) const { return options_.bidirectional && block % 2 == 1; }
  int next(std::uint64_t block) const {
    return goes_back(block) ? (rank_ + size_ - 1) % size_ : (rank_ + 1) % size_;
  }
  int previous(std::uint64_t block) const {
    return goes_back(block) ? (rank_ + 1) % size_ : (rank_ + size_ - 1) % size_;
  }
  /// This rank's virtual rank in the ring of a block, counted in the block's direction.
  int virtual_rank(std::uint64_t block) const { return goes_back(block) ? size_ - rank_ : rank_; }

  std::uint64_t rounds() const { return static_cast<std::uint64_t>(size_ - 1); }

  void write_alone() {
    for (std::uint64_t block = 0; block < blocks_; ++block) {
      const Interval part = split({0, count_}, blocks_, block, granule_);
      builder_.copy({Space::kInput, -1, part.begin, part.length},
                    {{Space::kOutput, -1, part.begin, part.length}}, Scaling::kBoth, {});
    }
  }

  void lay_out_slots() {
    for (std::uint64_t block = 0; block < blocks_; ++block)
      for (int c = 0; c < size_; ++c)
        slot_elements_ = std::max(slot_elements_, chunk(block, c).length);
    slot_elements_ = round_up(slot_elements_, granule_);
    in_flight_ =
        std::min<std::uint64_t>(blocks_, static_cast<std::uint64_t>(options_.blocks_in_flight));
    finished_.assign(in_flight_, kNoStep);
    const bool packed = options_.placement == Placement::kPacked;
    slots_begin_ = packed ? round_up(count_, granule_) : 0;
    builder_.need_scratch(slots_begin_ + in_flight_ * slots_per_block() * slot_elements_);
  }

  std::uint64_t slots_per_block() const {
    return std::min<std::uint64_t>(kSlotsPerBlock, rounds());
  }

  /// Chunk `index` (modulo p) of a block.
  Interval chunk(std::uint64_t block, int index) const {
    const int wrapped = ((index % size_) + size_) % size_;
    return split(split({0, count_}, blocks_, block, granule_), static_cast<std::uint64_t>(size_),
                 static_cast<std::uint64_t>(wrapped), granule_);
  }
  Operand data(Interval part) const {
    const bool packed = options_.placement == Placement::kPacked;
    return {packed ? Space::kScratch : Space::kOutput, -1, part.begin, part.length};
  }
  static Operand input(Interval part) { return {Space::kInput, -1, part.begin, part.length}; }

  void unpack(Interval part, StepId after) {
    if (options_.placement == Placement::kPacked)
      builder_.copy(data(part), {{Space::kOutput, -1, part.begin, part.length}}, Scaling::kNone,
                    {after});
  }

  void write_block(std::uint64_t block);
  StepId reduce_scatter(std::uint64_t block, std::uint32_t tag, std::vector<StepId>& sends);

  int rank_;
  int size_;
  std::uint64_t count_;
  RingOptions options_;
  ScheduleBuilder builder_;
  std::uint64_t granule_ = 1;
  std::uint64_t blocks_ = 0;
  std::uint64_t in_flight_ = 0;
  std::uint64_t slots_begin_ = 0;
  std::uint64_t slot_elements_ = 0;
  std::vector<StepId> finished_;  ///< by block modulo in_flight_: its join
};

// Returns the reduce that completes this rank's own chunk (rank + 1). sends[s] is set to the send
// of round s.
StepId RingWriter::reduce_scatter(std::uint64_t block, std::uint32_t tag,
                                  std::vector<StepId>& sends) {
  const std::uint64_t pipeline_slot = block % in_flight_;
  const StepId gate = finished_[pipeline_slot];
  std::array<StepId, kSlotsPerBlock> slot_reader;
  slot_reader.fill(gate);

  const int virtual_rank = this->virtual_rank(block);
  StepId ready = kNoStep;  // step that completes the chunk of this round's send
  Operand held;            // memory of this chunk
  if (const Interval first = chunk(block, virtual_rank); first.length > 0) {
    held = data(first);
    ready = builder_.copy(input(first), {held}, Scaling::kPre, {gate});
  }
  StepId* held_reader = nullptr;  // reader of its slot, if the chunk is in a slot

  for (int s = 0; s < size_ - 1; ++s, ++tag) {
    if (const Interval outgoing = chunk(block, virtual_rank - s); outgoing.length > 0) {
      const StepId sent = builder_.send(next(block), tag, held, {ready});
      sends[static_cast<std::size_t>(s)] = sent;
      if (held_reader != nullptr) *held_reader = sent;
    }

    const Interval incoming = chunk(block, virtual_rank - s - 1);
    ready = kNoStep;
    if (incoming.length == 0) continue;
    const auto slot = static_cast<std::uint64_t>(s) % slots_per_block();
    const Operand landing{
        Space::kScratch, -1,
        slots_begin_ + (pipeline_slot * slots_per_block() + slot) * slot_elements_,
        incoming.length};
    const Operand arriving = landing.as_partial(s > 0);
    const StepId received = builder_.receive(previous(block), tag, arriving, {slot_reader[slot]});
    const bool last = s == size_ - 2;
    held = last ? data(incoming) : landing.as_partial();
    ready = builder_.reduce({arriving, input(incoming)}, {held},
                            last ? Scaling::kBoth : Scaling::kPre, {received});
    slot_reader[slot] = ready;
    held_reader = last ? nullptr : &slot_reader[slot];
  }
  return ready;
}

void RingWriter::write_block(std::uint64_t block) {
  const auto tag = static_cast<std::uint32_t>(block * rounds() * 2);
  std::vector<StepId> scatter_sends(rounds(), kNoStep);
  std::vector<StepId> last_steps;  // every other step except unpacking precedes one of these

  StepId ready = reduce_scatter(block, tag, scatter_sends);
  const int virtual_rank = this->virtual_rank(block);
  const Interval own = chunk(block, virtual_rank + 1);
  for (int s = 0; s < size_ - 1; ++s) {
    const std::uint32_t round_tag =
        tag + static_cast<std::uint32_t>(rounds()) + static_cast<std::uint32_t>(s);
    const Interval outgoing = chunk(block, virtual_rank + 1 - s);
    if (outgoing.length > 0)
      last_steps.push_back(builder_.send(next(block), round_tag, data(outgoing), {ready}));
    if (s == 0 && own.length > 0) unpack(own, ready);

    const Interval incoming = chunk(block, virtual_rank - s);
    ready = kNoStep;
    if (incoming.length == 0) continue;
    ready = builder_.receive(previous(block), round_tag, data(incoming),
                             {scatter_sends[static_cast<std::size_t>(s)]});
    unpack(incoming, ready);
  }
  last_steps.push_back(ready);
  // No step waits for the last blocks.
  if (block + in_flight_ < blocks_) finished_[block % in_flight_] = builder_.join(last_steps);
}

}  // namespace

Schedule allreduce_ring(int rank, int size, std::uint64_t count, const RingOptions& options) {
  return RingWriter(rank, size, count, options).write();
}

}  // namespace kolo
