// Two-level broadcast. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: the second half of allreduce_hierarchical.
//
// Hosts A = {0, 1}, B = {2, 3}, C = {4, 5}; rank 0 is the root; one block:
//
//   inside A   1 reads the root's window
//   slice 0    0 → 2 → 4, the first ranks of the hosts; in B and C the other ranks read from them
//   slice 1    1 → 3 → 5, the second ranks of the hosts; likewise
//
// The hosts form a chain that starts at the root's host, so no two wait for each other.
//
// Scratch of a pipeline slot: one buffer offset for each slice.
#include "runtime/collectives/broadcast_hierarchical.h"

#include "runtime/base/rounding.h"

#include <utility>
#include <vector>

namespace kolo {
namespace {

class BroadcastWriter {
 public:
  BroadcastWriter(int rank, const HostLayout& layout, int root, std::uint64_t count,
                  const HostsOptions& options)
      : rank_(rank),
        root_(root),
        slices_(static_cast<std::uint64_t>(layout.most_on_a_host())),
        routes_(rank, layout),
        distance_(routes_.distance_from(layout.host_of(root))),
        pieces_({0, count}, piece_of_pipeline_slot(options, slices_)),
        builder_("broadcast_hierarchical", rank, layout.size(), count),
        sent_(options.messages_in_flight),
        received_(options.messages_in_flight),
        blocks_(ceil_div(pieces_.count(), slices_)),
        pipeline_(builder_, slices_, piece_of_pipeline_slot(options, slices_), blocks_,
                  options.pipeline_slots) {}

  Schedule write() && {
    if (!routes_.others().empty()) builder_.need_mapped_scratch(pipeline_.elements());
    for (block_ = 0; block_ < blocks_; ++block_) {
      for (std::uint64_t slice = 0; slice < slices_; ++slice)
        if (piece(slice).length > 0) write_slice(slice);
      pipeline_.close(block_);
    }
    return std::move(builder_).finish();
  }

 private:
  static constexpr StepId kNoStep = ScheduleBuilder::kNoStep;

  Interval piece(std::uint64_t slice) const { return pieces_[block_ * slices_ + slice]; }
  std::uint32_t tag(std::uint64_t slice) const {
    return static_cast<std::uint32_t>(block_ * slices_ + slice);
  }
  int carrier(int hosts_after, std::uint64_t slice) const {
    return routes_.carrier_of_index(routes_.host_after(hosts_after), slice);
  }

  void write_slice(std::uint64_t slice);
  void offer(std::uint64_t slice, StepId ready);
  StepId read(std::uint64_t slice, int peer);

  int rank_;
  int root_;
  std::uint64_t slices_;
  HostRoutes routes_;
  int distance_;  ///< how many hosts this one comes after the root's
  Pieces pieces_;
  ScheduleBuilder builder_;
  MessageWindow sent_;
  MessageWindow received_;
  std::uint64_t blocks_;
  HostPipeline pipeline_;
  std::uint64_t block_ = 0;  ///< the block that is being written
};

void BroadcastWriter::write_slice(std::uint64_t slice) {
  const Interval what = piece(slice);
  const bool carries = carrier(0, slice) == rank_;
  StepId ready = kNoStep;  // step after which the output holds the slice
  if (rank_ == root_) {
    builder_.copy(input_at(what), {output_at(what)}, Scaling::kNone, {});
    offer(slice, kNoStep);
  } else if (distance_ > 0 && carries) {
    ready = builder_.receive(carrier(-1, slice), tag(slice), output_at(what), {received_.gate()});
    received_.push(ready);
    offer(slice, ready);
  } else {
    ready = read(slice, distance_ == 0 ? root_ : carrier(0, slice));
  }
  if (carries && distance_ + 1 < routes_.hosts())
    sent_.push(builder_.send(carrier(1, slice), tag(slice),
                             rank_ == root_ ? input_at(what) : output_at(what),
                             {ready, sent_.gate()}));
}

/// Offers a slice to the other ranks of this host. It is in the root's input, or in this rank's
/// output after `ready`.
void BroadcastWriter::offer(std::uint64_t slice, StepId ready) {
  if (routes_.others().empty()) return;
  const Interval what = piece(slice);
  const Operand window = pipeline_.own(block_, slice, what.length);
  const StepId gate = pipeline_.gate(block_);
  const StepId written =
      rank_ == root_ ? builder_.stand_in(input_at(what), window, Scaling::kNone, {gate})
                     : builder_.copy(output_at(what), {window}, Scaling::kNone, {ready, gate});
  for (const int reader : routes_.others()) pipeline_.offer(block_, slice, reader, written);
}

StepId BroadcastWriter::read(std::uint64_t slice, int peer) {
  const Interval what = piece(slice);
  const std::uint64_t direct = peer == root_ ? what.begin : Operand::kNowhere;
  const StepId read =
      builder_.copy(pipeline_.of(peer, block_, slice, what.length, direct), {output_at(what)},
                    Scaling::kNone, {pipeline_.arrival(block_, slice, peer)});
  pipeline_.has_read(peer, read);
  return read;
}

}  // namespace

Schedule broadcast_hierarchical(int rank, const HostLayout& layout, int root, std::uint64_t count,
                                const HostsOptions& options) {
  KOLO_CHECK(layout.hosts() > 1 && root >= 0 && root < layout.size());
  return BroadcastWriter(rank, layout, root, count, options).write();
}

}  // namespace kolo
