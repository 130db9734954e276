// Ring reduce-scatter. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters
// of workstations", JPDC 69 (2009). Block b holds chunk b of each part that has one, and is a small
// ring of its own.
//
// One block for p = 3, in rank order. Rank r sends to r+1 and receives from r−1; [c] is a chunk of
// rank c's part, + is a reduce of the received chunk with the rank's own input.
//
//        rank 0                  rank 1                  rank 2
//   s=0  send [2]                send [0]                send [1]                packed from kInput
//        get [1], + own [1]      get [2], + own [2]      get [0], + own [0]      → sum slot
//   s=1  send [1]                send [2]                send [0]
//        get [0], + own [0]      get [1], + own [1]      get [2], + own [2]      → kOutput, scaled
//
// Steps of a rank for each block: p−1 sends, receives and reduces, 1 copy; fewer if parts have no
// chunk. A rank sends Σ counts elements less its own part; all ranks together (p−1) · Σ counts.
//
// The input is not written, so running sums live in scratch. Each block in flight has two slots for
// receives and two for sums that are sent, used in turn. A receive into a slot waits for the reduce
// that reads it. A sum into a slot waits for the send from it. A later block takes over the slots
// of its pipeline slot under the same rules. Round 0 sends inputs, all other rounds partial sums.
#include "runtime/collectives/reduce_scatter_ring.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/pipeline.h"
#include "runtime/collectives/ring_order.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr int kSlots = 2;  ///< receive slots, and as many sum slots

class ReduceScatterWriter {
 public:
  ReduceScatterWriter(int rank, int size, std::span<const std::uint64_t> counts,
                      const ReduceScatterOptions& options)
      : size_(size),
        ring_(rank, size, options.order),
        begin_of_own_(end_to_end(counts)[static_cast<std::size_t>(rank)].begin),
        builder_("reduce_scatter_ring", rank, size, sum_of(counts),
                 counts[static_cast<std::size_t>(rank)]) {
    KOLO_CHECK(options.chunk_elements > 0 && options.blocks_in_flight > 0);
    for (const Interval part : end_to_end(counts)) {
      pieces_.emplace_back(part, options.chunk_elements);
      blocks_ = std::max<std::uint64_t>(blocks_, pieces_.back().count());
      for (std::uint32_t i = 0; i < pieces_.back().count(); ++i)
        slot_elements_ = std::max(slot_elements_, pieces_.back()[i].length);
    }
    KOLO_CHECK(blocks_ * static_cast<std::uint64_t>(size) < UINT32_MAX);  // tags are 32 bits wide
    // Slots begin on cache lines if chunks are a multiple of them, like the pieces.
    if (slot_elements_ < options.chunk_elements)
      slot_elements_ =
          std::min(round_up(slot_elements_, kCacheLineElements), options.chunk_elements);
    pipeline_slots_.resize(
        std::min<std::uint64_t>(blocks_, static_cast<std::uint64_t>(options.blocks_in_flight)));
  }

  Schedule write() && {
    if (size_ > 1)
      builder_.need_scratch(pipeline_slots_.size() * 2 * static_cast<std::uint64_t>(slots()) *
                            slot_elements_);
    for (std::uint64_t block = 0; block < blocks_; ++block) {
      if (size_ == 1) {
        const Interval part = piece(block, 0);
        builder_.copy(input_at(part), {output_at(part)}, Scaling::kBoth, {});
      } else {
        write_block(block);
      }
    }
    return std::move(builder_).finish();
  }

 private:
  static constexpr StepId kNoStep = ScheduleBuilder::kNoStep;

  /// By slot: the step that must be done before the slot is written again.
  struct PipelineSlot {
    PipelineSlot() {
      landing_reader.fill(kNoStep);
      sum_sender.fill(kNoStep);
    }
    std::array<StepId, kSlots> landing_reader;
    std::array<StepId, kSlots> sum_sender;
  };

  int slots() const { return std::min(kSlots, size_ - 1); }
  /// Chunk `block` of the part of the rank `places_before` before this one; at most one round.
  Interval piece(std::uint64_t block, int places_before) const {
    return pieces_[static_cast<std::size_t>(ring_.after(-places_before))][block];
  }
  /// Slot `index` of 2 × slots(): first the receive slots, then the sum slots.
  Operand slot(std::uint64_t pipeline_slot, int index, std::uint64_t length) const {
    const std::uint64_t number =
        pipeline_slot * 2 * static_cast<std::uint64_t>(slots()) + static_cast<std::uint64_t>(index);
    return {Space::kScratch, -1, number * slot_elements_, length};
  }

  void write_block(std::uint64_t block);

  int size_;
  RingOrder ring_;
  std::uint64_t begin_of_own_;
  ScheduleBuilder builder_;
  std::vector<Pieces> pieces_;  ///< by rank
  std::uint64_t blocks_ = 0;
  std::uint64_t slot_elements_ = 0;
  std::vector<PipelineSlot> pipeline_slots_;
};

void ReduceScatterWriter::write_block(std::uint64_t block) {
  const std::uint64_t pipeline_slot_index = block % pipeline_slots_.size();
  PipelineSlot& pipeline_slot = pipeline_slots_[pipeline_slot_index];
  StepId ready = kNoStep;  // step that completes the sum which this round sends
  if (const Interval first = piece(block, 1); first.length > 0)
    ready = builder_.copy(input_at(first), {slot(pipeline_slot_index, slots(), first.length)},
                          Scaling::kPre, {pipeline_slot.sum_sender[0]});

  for (int s = 0; s < size_ - 1; ++s) {
    const std::uint32_t tag =
        static_cast<std::uint32_t>(block) * static_cast<std::uint32_t>(size_ - 1) +
        static_cast<std::uint32_t>(s);
    const int current = s % slots();
    const bool of_sums = s > 0;
    if (const Interval outgoing = piece(block, s + 1); outgoing.length > 0)
      pipeline_slot.sum_sender[static_cast<std::size_t>(current)] = builder_.send(
          ring_.after(1), tag,
          slot(pipeline_slot_index, slots() + current, outgoing.length).as_partial(of_sums),
          {ready});

    const Interval incoming = piece(block, s + 2);
    if (incoming.length == 0) continue;
    StepId& landing_reader = pipeline_slot.landing_reader[static_cast<std::size_t>(current)];
    const Operand landing = slot(pipeline_slot_index, current, incoming.length).as_partial(of_sums);
    const StepId received = builder_.receive(ring_.after(-1), tag, landing, {landing_reader});
    if (s == size_ - 2) {
      const Interval own{incoming.begin - begin_of_own_, incoming.length};
      ready = builder_.reduce({landing, input_at(incoming)}, {output_at(own)}, Scaling::kBoth,
                              {received});
    } else {
      const int next = (s + 1) % slots();
      ready = builder_.reduce(
          {landing, input_at(incoming)},
          {slot(pipeline_slot_index, slots() + next, incoming.length).as_partial()}, Scaling::kPre,
          {received, pipeline_slot.sum_sender[static_cast<std::size_t>(next)]});
    }
    landing_reader = ready;
  }
}

}  // namespace

Schedule reduce_scatter_ring(int rank, int size, std::span<const std::uint64_t> counts,
                             const ReduceScatterOptions& options) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size));
  return ReduceScatterWriter(rank, size, counts, options).write();
}

}  // namespace kolo
