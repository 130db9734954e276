// Choosing an algorithm, and the least-recently-used cache of schedules. Progress token holder.
#include "runtime/collectives/chooser.h"

#include "runtime/base/check.h"
#include "runtime/collectives/allgather_bruck.h"
#include "runtime/collectives/allgather_hierarchical.h"
#include "runtime/collectives/allgather_mapped.h"
#include "runtime/collectives/allgather_recursive_doubling.h"
#include "runtime/collectives/allgather_ring.h"
#include "runtime/collectives/allreduce_double_tree.h"
#include "runtime/collectives/allreduce_halving_doubling.h"
#include "runtime/collectives/allreduce_hierarchical.h"
#include "runtime/collectives/allreduce_mapped.h"
#include "runtime/collectives/allreduce_recursive_doubling.h"
#include "runtime/collectives/alltoall_bruck.h"
#include "runtime/collectives/alltoall_mapped.h"
#include "runtime/collectives/alltoall_pairwise.h"
#include "runtime/collectives/barrier_dissemination.h"
#include "runtime/collectives/broadcast_binomial.h"
#include "runtime/collectives/broadcast_chain.h"
#include "runtime/collectives/broadcast_hierarchical.h"
#include "runtime/collectives/gather_linear.h"
#include "runtime/collectives/meet_first.h"
#include "runtime/collectives/point_to_point.h"
#include "runtime/collectives/reduce_scatter_halving.h"
#include "runtime/collectives/reduce_scatter_hierarchical.h"
#include "runtime/collectives/reduce_scatter_mapped.h"
#include "runtime/collectives/reduce_scatter_ring.h"
#include "runtime/collectives/scatter_linear.h"
#include "runtime/collectives/staged_messages.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <utility>

namespace kolo {
namespace {

/// A chunk is as long as hides what a message costs; much shorter ones are all cost.
constexpr std::uint64_t kChunkToSmall = 16;
/// Pairwise messages are under way together: over shared memory on 2 cores Bruck's rounds took 1.2
/// to 1.9 times as long with 10 to 48 ranks. A message costs its ranks about a microsecond each,
/// and a round over a network some ten, which meet at about this many.
constexpr int kRanksForRounds = 96;

/// The mapped scratch, cut into lanes.
MappedOptions lanes_of(const ScheduleRequest& request) {
  return {
      .block_elements = request.mapped_elements / static_cast<std::uint64_t>(request.mapped_lanes),
      .lanes = request.mapped_lanes,
      .direct = request.direct,
      .owners = request.owners};
}

HostsOptions hosts_of(const ScheduleRequest& request) {
  return {.chunk_elements = request.chunk_elements,
          .messages_in_flight = request.blocks_in_flight,
          .mapped_elements = request.mapped_elements,
          .lanes = request.mapped_lanes};
}

Schedule allreduce_over(const ScheduleRequest& request) {
  switch (request.algorithm) {
    case Algorithm::kMapped:
      return allreduce_mapped(request.rank, request.size, request.count, lanes_of(request));
    case Algorithm::kRing:
    case Algorithm::kBidirectionalRing:
      return allreduce_ring(request.rank, request.size, request.count,
                            {.chunk_elements = request.chunk_elements,
                             .blocks_in_flight = request.blocks_in_flight,
                             .placement = request.placement,
                             .bidirectional = request.algorithm == Algorithm::kBidirectionalRing});
    case Algorithm::kRecursiveDoubling:
      return allreduce_recursive_doubling(request.rank, request.size, request.count);
    case Algorithm::kHalvingDoubling:
      return allreduce_halving_doubling(request.rank, request.size, request.count);
    case Algorithm::kDoubleTree:
      return allreduce_double_tree(
          request.rank, request.size, request.count,
          {.chunk_elements = tree_chunk(request.size, request.count, request.chunk_elements),
           .chunks_in_flight = request.blocks_in_flight});
    case Algorithm::kHierarchical: {
      const bool maps = request.mapped_elements > 0;
      return allreduce_hierarchical(
          request.rank, request.layout, request.count,
          {.chunk_elements = request.chunk_elements,
           .blocks_in_flight = maps ? kMappedLanes : request.blocks_in_flight,
           .mapped_elements = request.mapped_elements,
           .staged = request.staged,
           .owners = request.owners});
    }
  }
  KOLO_CHECK(false);
  return {};
}

/// What `make` has for a place in `order`, for the rank that is there.
template <class Make>
Schedule by_places(std::span<const int> order, int rank, const Make& make) {
  const auto place = std::find(order.begin(), order.end(), rank) - order.begin();
  Schedule schedule = make(static_cast<int>(place));
  schedule.rank = rank;
  for (Step& step : schedule.steps)
    if (step.peer >= 0) step.peer = order[static_cast<std::size_t>(step.peer)];
  return schedule;
}

/// By messages to the ranks that are near first, whatever their numbers are.
Schedule allreduce(const ScheduleRequest& request) {
  const bool is_numbered =
      request.algorithm == Algorithm::kMapped || request.algorithm == Algorithm::kHierarchical;
  if (is_numbered || request.layout.is_in_order()) return allreduce_over(request);
  return by_places(request.layout.order(), request.rank, [&](int place) {
    ScheduleRequest placed = request;
    placed.rank = place;
    return allreduce_over(placed);
  });
}

/// With few elements the number of messages is what costs; up to three ranks a ring or a chain has
/// no more than a tree.
bool counts_messages(const ScheduleRequest& request, std::uint64_t elements) {
  return request.size > 3 && elements <= request.chunk_elements / kChunkToSmall;
}

/// Whether an alltoall has so many small parts that rounds, which wait for each other, are worth
/// fewer messages.
bool travels_through_others(const ScheduleRequest& request) {
  const std::uint64_t row = sum_of(request.counts) / static_cast<std::uint64_t>(request.size);
  return request.size > kRanksForRounds && counts_messages(request, row);
}

Schedule allgather(const ScheduleRequest& request, const PipelineOptions& pipeline) {
  if (request.algorithm == Algorithm::kMapped)
    return allgather_mapped(request.rank, request.size, request.counts, lanes_of(request));
  if (request.algorithm == Algorithm::kHierarchical)
    return allgather_hierarchical(request.rank, request.layout, request.counts, hosts_of(request));
  if (counts_messages(request, sum_of(request.counts))) {
    // Doubling needs no scratch, and two rounds more where it must fold.
    if (std::has_single_bit(static_cast<unsigned>(request.size)))
      return allgather_recursive_doubling(request.rank, request.size, request.counts,
                                          request.in_place);
    return allgather_bruck(request.rank, request.size, request.counts, request.in_place);
  }
  return allgather_ring(
      request.rank, request.size, request.counts,
      {.pipeline = pipeline, .in_place = request.in_place, .order = request.layout.order()});
}

/// The root and its host, then host by host.
std::vector<int> order_from(int root, const HostLayout& layout) {
  std::vector<int> order = {root};
  for (const bool near : {true, false})
    for (const int rank : layout.order())
      if (rank != root && (layout.host_of(rank) == layout.host_of(root)) == near)
        order.push_back(rank);
  return order;
}

Schedule broadcast(const ScheduleRequest& request) {
  const auto over = [&](int rank, int root) {
    if (counts_messages(request, request.count))
      return broadcast_binomial(rank, request.size, root, request.count);
    return broadcast_chain(
        rank, request.size, root, request.count,
        {.chunk_elements = request.chunk_elements, .chunks_in_flight = request.blocks_in_flight});
  };
  if (request.layout.size() == 0) return over(request.rank, request.root);
  return by_places(order_from(request.root, request.layout), request.rank,
                   [&](int place) { return over(place, 0); });
}

/// Between the users' memory and the network without a stop.
Schedule unstaged_schedule(const ScheduleRequest& request) {
  const int rank = request.rank;
  const int size = request.size;
  const PipelineOptions pipeline{.chunk_elements = request.chunk_elements,
                                 .chunks_in_flight = request.blocks_in_flight};
  const bool is_mapped = request.algorithm == Algorithm::kMapped;
  const bool is_hierarchical = request.algorithm == Algorithm::kHierarchical;
  switch (request.collective) {
    case Collective::kAllreduce:
      return allreduce(request);
    case Collective::kBroadcast:
      if (is_mapped)
        return broadcast_mapped(rank, size, request.root, request.count, lanes_of(request));
      if (is_hierarchical)
        return broadcast_hierarchical(rank, request.layout, request.root, request.count,
                                      hosts_of(request));
      return broadcast(request);
    case Collective::kAllgather:
      return allgather(request, pipeline);
    case Collective::kAlltoall:
      if (is_mapped) return alltoall_mapped(rank, size, request.counts, lanes_of(request));
      if (travels_through_others(request)) return alltoall_bruck(rank, size, request.counts);
      return alltoall_pairwise(rank, size, request.counts, pipeline);
    case Collective::kReduceScatter:
      if (is_mapped) return reduce_scatter_mapped(rank, size, request.counts, lanes_of(request));
      if (is_hierarchical)
        return reduce_scatter_hierarchical(rank, request.layout, request.counts, hosts_of(request));
      if (counts_messages(request, sum_of(request.counts)))
        return reduce_scatter_halving(rank, size, request.counts);
      return reduce_scatter_ring(rank, size, request.counts,
                                 {.chunk_elements = request.chunk_elements,
                                  .blocks_in_flight = request.blocks_in_flight,
                                  .order = request.layout.order()});
    case Collective::kGather:
      return gather_linear(rank, size, request.root, request.counts,
                           {.pipeline = pipeline, .in_place = request.in_place});
    case Collective::kScatter:
      return scatter_linear(rank, size, request.root, request.counts,
                            {.pipeline = pipeline, .in_place = request.in_place});
    case Collective::kBarrier:
      return barrier_dissemination(rank, size);
    case Collective::kPointToPoint:
      return point_to_point(rank, size, request.root, request.peer, request.count, pipeline);
    case Collective::kAdasum:
      return allreduce_recursive_doubling(rank, size, request.count);
  }
  KOLO_CHECK(false);
  return {};
}

/// Between the network and memory that it reaches.
Schedule staged_schedule(const ScheduleRequest& request) {
  const bool stages_itself =
      request.collective == Collective::kAllreduce && request.algorithm == Algorithm::kHierarchical;
  Schedule schedule = unstaged_schedule(request);
  if (!request.staged || stages_itself) return schedule;
  return stage_messages(schedule, {.slots = request.blocks_in_flight,
                                   .passes_on = request.collective == Collective::kBroadcast});
}

/// What an entry counts for in ScheduleCache::Limits::steps.
std::size_t weight_of(const ScheduleRequest& request, const Schedule& schedule) {
  // The request is kept twice, and a count is a tenth of a step.
  return schedule.steps.size() + request.counts.size() / 5;
}

}  // namespace

Schedule make_schedule(const ScheduleRequest& request) {
  Schedule schedule = staged_schedule(request);
  const bool meets = request.meets_first && request.algorithm != Algorithm::kMapped;
  return meets ? meet_first(schedule) : schedule;
}

std::shared_ptr<const Schedule> ScheduleCache::get(const ScheduleRequest& request) {
  if (const auto found = by_request_.find(request); found != by_request_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().schedule;
  }
  auto schedule = std::make_shared<const Schedule>(make_schedule(request));
  steps_ += weight_of(request, *schedule);
  entries_.push_front({request, schedule});
  by_request_.emplace(request, entries_.begin());

  while (entries_.size() > 1 && (entries_.size() > limits_.entries || steps_ > limits_.steps)) {
    steps_ -= weight_of(entries_.back().request, *entries_.back().schedule);
    by_request_.erase(entries_.back().request);
    entries_.pop_back();
  }
  return schedule;
}

std::size_t ScheduleCache::Hash::operator()(const ScheduleRequest& request) const noexcept {
  std::uint64_t hash = 0;
  const auto mix = [&](std::uint64_t value) {
    // Steele & Vigna's mixing multiplier; the shift brings its high bits down.
    hash = (hash ^ value) * 0xd1342543de82ef95u;
    hash ^= hash >> 32;
  };
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(request.collective), static_cast<std::uint64_t>(request.rank),
        static_cast<std::uint64_t>(request.size), static_cast<std::uint64_t>(request.root),
        static_cast<std::uint64_t>(request.peer), request.count, request.chunk_elements,
        static_cast<std::uint64_t>(request.blocks_in_flight),
        static_cast<std::uint64_t>(request.placement),
        static_cast<std::uint64_t>(request.algorithm), request.mapped_elements,
        static_cast<std::uint64_t>(request.mapped_lanes),
        static_cast<std::uint64_t>(request.in_place), static_cast<std::uint64_t>(request.direct),
        static_cast<std::uint64_t>(request.staged),
        static_cast<std::uint64_t>(request.meets_first)})
    mix(value);
  for (const std::uint64_t count : request.counts) mix(count);
  for (const int owner : request.owners) mix(static_cast<std::uint64_t>(owner));
  for (int r = 0; r < request.layout.size(); ++r)
    mix(static_cast<std::uint64_t>(request.layout.host_of(r)));
  for (const int rank : request.layout.order()) mix(static_cast<std::uint64_t>(rank));
  return hash;
}

}  // namespace kolo
