// Two-level allgather. Called through the schedule cache when an operation starts, by the holder of
// the progress token; pure. Idea: as allreduce_hierarchical's second half.
//
// Hosts A = {0, 1}, B = {2, 3}, C = {4, 5}, a block: a piece of each part.
//
//   round 0    0 → 2 → 4 → 0 own pieces      1 → 3 → 5 → 1 own pieces
//   round 1    … the pieces that came in the round before
//   inside     each rank reads the other's own piece, and those that have come to it
//
// A rank sends its own piece and passes on what comes, but what the next host had first: H − 1
// rounds. Sends and receives are in the order (block, round, part) on all ranks, so windows of
// messages never wait in a circle.
//
// Scratch, by lane: a place for each part that this rank carries, beginning with its own.
#include "runtime/collectives/allgather_hierarchical.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace kolo {
namespace {

class AllgatherWriter {
 public:
  AllgatherWriter(int rank, const HostLayout& layout, std::span<const std::uint64_t> counts,
                  const HostsOptions& options)
      : rank_(rank),
        routes_(rank, layout),
        parts_(end_to_end(counts)),
        builder_("allgather_hierarchical", rank, layout.size(), counts[as_index(rank)],
                 sum_of(counts)),
        sent_(options.messages_in_flight),
        received_(options.messages_in_flight) {
    const std::uint64_t places = routes_.most_carried();
    const std::uint64_t piece = piece_of_lane(options, places);
    std::uint64_t blocks = 0, tags = 0;
    for (const Interval part : parts_) {
      pieces_.emplace_back(part, piece);
      first_tag_.push_back(tags);
      tags += pieces_.back().count();
      blocks = std::max<std::uint64_t>(blocks, pieces_.back().count());
    }
    KOLO_CHECK(tags < UINT32_MAX);  // tags are 32 bits wide
    blocks_ = blocks;
    lanes_.emplace(builder_, places, piece, blocks, options.lanes);
  }

  Schedule write() && {
    const Interval own = parts_[as_index(rank_)];
    if (own.length > 0)
      builder_.copy(input_at({0, own.length}), {output_at(own)}, Scaling::kNone, {});
    if (!routes_.others().empty()) builder_.need_mapped_scratch(lanes_->elements());
    for (block_ = 0; block_ < blocks_; ++block_) write_block();
    return std::move(builder_).finish();
  }

 private:
  static std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }
  Interval piece(int part) const { return pieces_[as_index(part)][block_]; }
  std::uint32_t tag(int part) const {
    return static_cast<std::uint32_t>(first_tag_[as_index(part)] + block_);
  }
  Operand input_of(Interval own) const {
    return input_at({own.begin - parts_[as_index(rank_)].begin, own.length});
  }

  /// All that a rank of this host carries, in the order of its lane's places.
  std::vector<int> carried_by(int local) const {
    std::vector<int> parts = {local};
    for (int distance = 1; distance < routes_.hosts(); ++distance)
      for (const int part : routes_.carried_by(local, distance)) parts.push_back(part);
    return parts;
  }

  void write_block();
  void travel();
  void offer();
  void read_from(int peer);

  int rank_;
  HostRoutes routes_;
  std::vector<Interval> parts_;
  ScheduleBuilder builder_;
  MessageWindow sent_;
  MessageWindow received_;
  std::vector<Pieces> pieces_;  ///< by rank
  std::vector<std::uint64_t> first_tag_;
  std::uint64_t blocks_ = 0;
  std::optional<HostLanes> lanes_;
  std::uint64_t block_ = 0;        ///< which is being written
  std::map<int, StepId> arrived_;  ///< of this block, by part
};

void AllgatherWriter::write_block() {
  arrived_.clear();
  travel();
  offer();
  for (const int peer : routes_.others()) read_from(peer);
  lanes_->close(block_);
}

/// Over the network.
void AllgatherWriter::travel() {
  const int next = routes_.host_after(1), previous = routes_.host_after(-1);
  for (int round = 0; round + 1 < routes_.hosts(); ++round) {
    for (const int part : round == 0 ? std::vector<int>{rank_} : routes_.carried(round)) {
      if (piece(part).length == 0) continue;
      const bool is_own = part == rank_;
      sent_.push(
          builder_.send(routes_.carrier(next, part), tag(part),
                        is_own ? input_of(piece(part)) : output_at(piece(part)),
                        {is_own ? ScheduleBuilder::kNoStep : arrived_.at(part), sent_.gate()}));
    }
    for (const int part : routes_.carried(round + 1)) {
      if (piece(part).length == 0) continue;
      arrived_[part] = builder_.receive(routes_.carrier(previous, part), tag(part),
                                        output_at(piece(part)), {received_.gate()});
      received_.push(arrived_[part]);
    }
  }
}

/// What this rank has, to the others of its host.
void AllgatherWriter::offer() {
  if (routes_.others().empty()) return;
  HostLanes& lanes = *lanes_;
  std::uint64_t place = 0;
  for (const int part : carried_by(rank_)) {
    const Interval what = piece(part);
    const std::uint64_t here = place++;
    if (what.length == 0) continue;
    const Operand window = lanes.own(block_, here, what.length);
    const StepId written = part == rank_ ? builder_.stand_in(input_of(what), window, Scaling::kNone,
                                                             {lanes.gate(block_)})
                                         : builder_.copy(output_at(what), {window}, Scaling::kNone,
                                                         {arrived_.at(part), lanes.gate(block_)});
    for (const int reader : routes_.others()) lanes.offer(block_, here, reader, written);
  }
}

void AllgatherWriter::read_from(int peer) {
  HostLanes& lanes = *lanes_;
  std::uint64_t place = 0;
  for (const int part : carried_by(peer)) {
    const Interval what = piece(part);
    const std::uint64_t there = place++;
    if (what.length == 0) continue;
    const std::uint64_t direct =
        part == peer ? what.begin - parts_[as_index(part)].begin : Operand::kNowhere;
    lanes.has_read(
        peer, builder_.copy(lanes.of(peer, block_, there, what.length, direct), {output_at(what)},
                            Scaling::kNone, {lanes.arrival(block_, there, peer)}));
  }
}

}  // namespace

Schedule allgather_hierarchical(int rank, const HostLayout& layout,
                                std::span<const std::uint64_t> counts,
                                const HostsOptions& options) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(layout.size()) && layout.hosts() > 1);
  return AllgatherWriter(rank, layout, counts, options).write();
}

}  // namespace kolo
