// Two-level allgather. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: the second half of allreduce_hierarchical.
//
// Hosts A = {0, 1}, B = {2, 3}, C = {4, 5}. A block is one piece of each part:
//
//   round 0    0 → 2 → 4 → 0 own pieces      1 → 3 → 5 → 1 own pieces
//   round 1    … the pieces that came in the round before
//   inside     each rank reads the other's own piece, and those that have come to it
//
// A rank sends its own piece and forwards the pieces that it receives, except those that began at
// the next host. This takes H − 1 rounds. All ranks send and receive in the order (block, round,
// part), so their message windows cannot deadlock.
//
// Scratch of a pipeline slot: one buffer offset for each part that this rank carries, its own
// first.
#include "runtime/collectives/allgather_hierarchical.h"

#include <algorithm>
#include <map>
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
        builder_("allgather_hierarchical", rank, layout.size(), counts[as_index(rank)],
                 sum_of(counts)),
        sent_(options.messages_in_flight),
        received_(options.messages_in_flight),
        blocks_(counts, piece_of_pipeline_slot(options, routes_.most_carried())),
        pipeline_(builder_, routes_.most_carried(),
                  piece_of_pipeline_slot(options, routes_.most_carried()), blocks_.count(),
                  options.pipeline_slots) {}

  Schedule write() && {
    const Interval own = blocks_.part(rank_);
    if (own.length > 0)
      builder_.copy(input_at({0, own.length}), {output_at(own)}, Scaling::kNone, {});
    if (!routes_.others().empty()) builder_.need_mapped_scratch(pipeline_.elements());
    for (block_ = 0; block_ < blocks_.count(); ++block_) write_block();
    return std::move(builder_).finish();
  }

 private:
  static std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }
  Interval piece(int part) const { return blocks_.piece(block_, part); }
  std::uint32_t tag(int part) const { return blocks_.tag(block_, part); }
  Operand own_input() const { return input_at(blocks_.within_part(block_, rank_)); }

  /// All parts that a rank of this host carries, in the order of their buffer offsets in its
  /// pipeline slot.
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
  ScheduleBuilder builder_;
  MessageWindow sent_;
  MessageWindow received_;
  BlocksOfParts blocks_;
  HostPipeline pipeline_;
  std::uint64_t block_ = 0;        ///< the block that is being written
  std::map<int, StepId> arrived_;  ///< receives of this block, by part
};

void AllgatherWriter::write_block() {
  arrived_.clear();
  travel();
  offer();
  for (const int peer : routes_.others()) read_from(peer);
  pipeline_.close(block_);
}

/// Sends and receives the pieces over the network.
void AllgatherWriter::travel() {
  const int next = routes_.host_after(1), previous = routes_.host_after(-1);
  for (int round = 0; round + 1 < routes_.hosts(); ++round) {
    for (const int part : round == 0 ? std::vector<int>{rank_} : routes_.carried(round)) {
      if (piece(part).length == 0) continue;
      const bool is_own = part == rank_;
      sent_.push(builder_.send(
          routes_.carrier(next, part), tag(part), is_own ? own_input() : output_at(piece(part)),
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

/// Offers all pieces that this rank holds to the other ranks of its host.
void AllgatherWriter::offer() {
  if (routes_.others().empty()) return;
  std::uint64_t piece_index = 0;
  for (const int part : carried_by(rank_)) {
    const Interval what = piece(part);
    const std::uint64_t here = piece_index++;
    if (what.length == 0) continue;
    const Operand window = pipeline_.own(block_, here, what.length);
    const StepId written =
        part == rank_
            ? builder_.stand_in(own_input(), window, Scaling::kNone, {pipeline_.gate(block_)})
            : builder_.copy(output_at(what), {window}, Scaling::kNone,
                            {arrived_.at(part), pipeline_.gate(block_)});
    for (const int reader : routes_.others()) pipeline_.offer(block_, here, reader, written);
  }
}

void AllgatherWriter::read_from(int peer) {
  std::uint64_t piece_index = 0;
  for (const int part : carried_by(peer)) {
    const Interval what = piece(part);
    const std::uint64_t there = piece_index++;
    if (what.length == 0) continue;
    const std::uint64_t direct =
        part == peer ? blocks_.within_part(block_, part).begin : Operand::kNowhere;
    pipeline_.has_read(peer, builder_.copy(pipeline_.of(peer, block_, there, what.length, direct),
                                           {output_at(what)}, Scaling::kNone,
                                           {pipeline_.arrival(block_, there, peer)}));
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
