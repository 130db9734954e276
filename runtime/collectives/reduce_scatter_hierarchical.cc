// Two-level reduce-scatter. Pure; the progress token holder calls it through the schedule cache
// when an operation starts. Idea: the first half of allreduce_hierarchical.
//
// Hosts A = {0, 1}, B = {2, 3}, C = {4, 5}. The part of rank 2 in a block; D is the sum of a host:
//
//   inside     4 sums C's inputs: D꜀     0 sums A's: D_A     2 sums B's own
//   round 0    4 → 0: D꜀
//   round 1    0 → 2: D꜀ + D_A, and 2 adds the inputs of its host
//
// All parts travel like this at once, each around the ring of hosts. All ranks send and receive in
// the order (block, round, part), so their message windows cannot deadlock.
//
// Scratch of a pipeline slot: one buffer offset for each rank's part. It holds this rank's input
// for the rank that sums it. If this rank sums the part, it holds the received data, then the sum.
// Messages are partial sums, except the inputs that hosts of one rank send in round 0.
#include "runtime/collectives/reduce_scatter_hierarchical.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace kolo {
namespace {

class HierarchicalReduceScatterWriter {
 public:
  HierarchicalReduceScatterWriter(int rank, const HostLayout& layout,
                                  std::span<const std::uint64_t> counts,
                                  const HostsOptions& options)
      : rank_(rank),
        size_(layout.size()),
        routes_(rank, layout),
        builder_("reduce_scatter_hierarchical", rank, size_, sum_of(counts),
                 counts[as_index(rank)]),
        sent_(options.messages_in_flight),
        received_(options.messages_in_flight),
        blocks_(counts, piece_of_pipeline_slot(options, counts.size())),
        pipeline_(builder_, counts.size(), piece_of_pipeline_slot(options, counts.size()),
                  blocks_.count(), options.pipeline_slots) {}

  Schedule write() && {
    if (routes_.others().empty()) {
      builder_.need_scratch(pipeline_.elements());  // no other rank uses it
    } else {
      builder_.need_mapped_scratch(pipeline_.elements());
    }
    for (block_ = 0; block_ < blocks_.count(); ++block_) write_block();
    return std::move(builder_).finish();
  }

 private:
  static constexpr StepId kNoStep = ScheduleBuilder::kNoStep;
  static std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }
  Interval piece(int part) const { return blocks_.piece(block_, part); }
  std::uint32_t tag(int part) const { return blocks_.tag(block_, part); }
  Operand sum(int part) const { return pipeline_.own(block_, as_index(part), piece(part).length); }

  void write_block();
  void offer();
  void travel();
  /// Whether the host `distance` after this one starts with a sum, not with an input.
  bool is_summed(int distance) const { return routes_.members_after(distance).size() > 1; }
  StepId combine(int part, Operand landing, StepId landed);

  int rank_;
  int size_;
  HostRoutes routes_;
  ScheduleBuilder builder_;
  MessageWindow sent_;
  MessageWindow received_;
  BlocksOfParts blocks_;
  HostPipeline pipeline_;
  std::uint64_t block_ = 0;  ///< the block that is being written
};

void HierarchicalReduceScatterWriter::write_block() {
  offer();
  travel();
  pipeline_.close(block_);
}

/// Offers this rank's input to the ranks of its host that sum it.
void HierarchicalReduceScatterWriter::offer() {
  for (int k = 1; k <= size_; ++k) {
    const int part = (rank_ + k) % size_;
    const Interval what = piece(part);
    const int carrier = routes_.carrier(routes_.host_after(0), part);
    if (what.length == 0 || carrier == rank_) continue;
    pipeline_.offer(
        block_, as_index(part), carrier,
        builder_.stand_in(input_at(what), sum(part), Scaling::kPre, {pipeline_.gate(block_)}));
  }
}

/// Sums this host's inputs, and `landing` if data from the hosts before it has arrived there. The
/// sum goes to the output if the part is this rank's own.
StepId HierarchicalReduceScatterWriter::combine(int part, Operand landing, StepId landed) {
  const Interval what = piece(part);
  const bool is_own = part == rank_;
  std::vector<Operand> sources;
  std::vector<StepId> ready = {pipeline_.gate(block_), landed};
  if (landed != kNoStep) sources.push_back(landing);
  std::vector<int> peers;
  for (const int local : routes_.locals()) {
    if (local == rank_) {
      sources.push_back(input_at(what));
      continue;
    }
    sources.push_back(pipeline_.of(local, block_, as_index(part), what.length, what.begin));
    ready.push_back(pipeline_.arrival(block_, as_index(part), local));
    peers.push_back(local);
  }
  const Operand destination = is_own ? output_at(blocks_.within_part(block_, part))
                                     : sum(part).as_partial(sources.size() > 1);
  const Scaling scaling = is_own ? Scaling::kBoth : Scaling::kPre;
  if (sources.size() == 1)
    return builder_.copy(sources.front(), {destination}, scaling, {pipeline_.gate(block_)});
  const StepId summed = builder_.reduce(sources, {&destination, 1}, scaling, ready);
  for (const int peer : peers) pipeline_.has_read(peer, summed);
  return summed;
}

void HierarchicalReduceScatterWriter::travel() {
  const int hosts = routes_.hosts();
  const int next = routes_.host_after(1), previous = routes_.host_after(-1);
  std::map<int, StepId> ready;  // by part: the step after which this host's sum can be sent
  for (const int part : routes_.carried(1))
    if (piece(part).length > 0) ready[part] = combine(part, {}, kNoStep);
  for (int round = 0; round + 1 < hosts; ++round) {
    const bool sends_sums = round > 0 || is_summed(0);
    const bool receives_sums = round > 0 || is_summed(-1);
    for (const int part : routes_.carried(round + 1)) {
      if (piece(part).length == 0) continue;
      const StepId sent =
          builder_.send(routes_.carrier(next, part), tag(part), sum(part).as_partial(sends_sums),
                        {ready.at(part), sent_.gate()});
      sent_.push(sent);
      pipeline_.hold(sent);
    }
    for (const int part : routes_.carried((round + 2) % hosts)) {
      if (piece(part).length == 0) continue;
      const Operand landing = sum(part).as_partial(receives_sums);
      const StepId received = builder_.receive(routes_.carrier(previous, part), tag(part), landing,
                                               {pipeline_.gate(block_), received_.gate()});
      received_.push(received);
      ready[part] = combine(part, landing, received);
      pipeline_.hold(ready[part]);
    }
  }
}

}  // namespace

Schedule reduce_scatter_hierarchical(int rank, const HostLayout& layout,
                                     std::span<const std::uint64_t> counts,
                                     const HostsOptions& options) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(layout.size()) && layout.hosts() > 1);
  return HierarchicalReduceScatterWriter(rank, layout, counts, options).write();
}

}  // namespace kolo
