// Chooses an algorithm and caches schedules (least recently used). Called by the progress token
// holder.
#include "runtime/planning/chooser.h"

#include "runtime/base/check.h"
#include "runtime/collectives/allgather_bruck.h"
#include "runtime/collectives/allgather_hierarchical.h"
#include "runtime/collectives/allgather_mapped.h"
#include "runtime/collectives/allgather_numa.h"
#include "runtime/collectives/allgather_recursive_doubling.h"
#include "runtime/collectives/allgather_ring.h"
#include "runtime/collectives/allreduce_double_tree.h"
#include "runtime/collectives/allreduce_halving_doubling.h"
#include "runtime/collectives/allreduce_hierarchical.h"
#include "runtime/collectives/allreduce_mapped.h"
#include "runtime/collectives/allreduce_numa.h"
#include "runtime/collectives/allreduce_recursive_doubling.h"
#include "runtime/collectives/alltoall_bruck.h"
#include "runtime/collectives/alltoall_mapped.h"
#include "runtime/collectives/alltoall_pairwise.h"
#include "runtime/collectives/barrier_dissemination.h"
#include "runtime/collectives/broadcast_binomial.h"
#include "runtime/collectives/broadcast_double_tree.h"
#include "runtime/collectives/broadcast_hierarchical.h"
#include "runtime/collectives/gather_linear.h"
#include "runtime/collectives/gather_scatter_mapped.h"
#include "runtime/collectives/meet_first.h"
#include "runtime/collectives/point_to_point.h"
#include "runtime/collectives/reduce_scatter_halving.h"
#include "runtime/collectives/reduce_scatter_hierarchical.h"
#include "runtime/collectives/reduce_scatter_mapped.h"
#include "runtime/collectives/reduce_scatter_numa.h"
#include "runtime/collectives/reduce_scatter_ring.h"
#include "runtime/collectives/scatter_linear.h"
#include "runtime/collectives/staged_messages.h"
#include "runtime/planning/thresholds.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <utility>

namespace kolo {
namespace {

/// Cuts the mapped scratch into pipeline slots.
MappedOptions pipeline_of(const ScheduleRequest& request) {
  return {.block_elements =
              request.mapped_elements / static_cast<std::uint64_t>(request.pipeline_slots),
          .pipeline_slots = request.pipeline_slots,
          .direct = request.direct,
          .owners = request.owners};
}

HostsOptions hosts_of(const ScheduleRequest& request) {
  return {.chunk_elements = request.chunk_elements,
          .messages_in_flight = request.blocks_in_flight,
          .mapped_elements = request.mapped_elements,
          .pipeline_slots = request.pipeline_slots};
}

Schedule allreduce_over(const ScheduleRequest& request) {
  switch (request.algorithm) {
    case Algorithm::kMapped:
      if (request.layout.hosts() > 1)
        return allreduce_numa(request.rank, request.layout, request.count, pipeline_of(request));
      return allreduce_mapped(request.rank, request.size, request.count, pipeline_of(request));
    case Algorithm::kRing:
    case Algorithm::kBidirectionalRing:
      return allreduce_ring(
          request.rank, request.size, request.count,
          {.chunk_elements = ring_chunk(request.size, request.count, request.chunk_elements),
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
           .blocks_in_flight = maps ? kPipelineSlots : request.blocks_in_flight,
           .mapped_elements = request.mapped_elements,
           .staged = request.staged,
           .owners = request.owners});
    }
  }
  KOLO_CHECK(false);
  return {};
}

/// Makes a schedule for a virtual rank, which is an index into `order`, and replaces all virtual
/// ranks in it by the real ones.
template <class Make>
Schedule by_virtual_ranks(std::span<const int> order, int rank, const Make& make) {
  const auto virtual_rank = std::find(order.begin(), order.end(), rank) - order.begin();
  Schedule schedule = make(static_cast<int>(virtual_rank));
  schedule.rank = rank;
  for (Step& step : schedule.steps)
    if (step.peer >= 0) step.peer = order[static_cast<std::size_t>(step.peer)];
  return schedule;
}

/// Near ranks exchange messages first, whatever their numbers are.
Schedule allreduce(const ScheduleRequest& request) {
  const bool is_numbered =
      request.algorithm == Algorithm::kMapped || request.algorithm == Algorithm::kHierarchical;
  if (is_numbered || request.layout.is_in_order()) return allreduce_over(request);
  return by_virtual_ranks(request.layout.order(), request.rank, [&](int virtual_rank) {
    ScheduleRequest renumbered = request;
    renumbered.rank = virtual_rank;
    return allreduce_over(renumbered);
  });
}

/// Whether the number of messages dominates the cost, because the elements are few.
bool counts_messages(const ScheduleRequest& request, std::uint64_t elements) {
  return elements <= request.chunk_elements / thresholds::kChunkToSmall;
}

/// Whether an alltoall has many small parts. Then fewer messages pay, although the rounds wait for
/// each other.
bool travels_through_others(const ScheduleRequest& request) {
  const std::uint64_t row = elements_of_parts(request) / static_cast<std::uint64_t>(request.size);
  return request.size > thresholds::kRanksForRounds && counts_messages(request, row);
}

Schedule allgather(const ScheduleRequest& request, const PipelineOptions& pipeline) {
  if (request.algorithm == Algorithm::kMapped && request.layout.hosts() > 1)
    return allgather_numa(request.rank, request.layout, request.counts, pipeline_of(request));
  if (request.algorithm == Algorithm::kMapped)
    return allgather_mapped(request.rank, request.size, request.counts, pipeline_of(request));
  if (request.algorithm == Algorithm::kHierarchical)
    return allgather_hierarchical(request.rank, request.layout, request.counts, hosts_of(request));
  if (request.algorithm == Algorithm::kRecursiveDoubling) {
    // Doubling needs no scratch, but two more rounds if it must fold.
    if (std::has_single_bit(static_cast<unsigned>(request.size)))
      return allgather_recursive_doubling(request.rank, request.size, request.counts,
                                          request.in_place);
    return allgather_bruck(request.rank, request.size, request.counts, request.in_place);
  }
  return allgather_ring(
      request.rank, request.size, request.counts,
      {.pipeline = pipeline, .in_place = request.in_place, .order = request.layout.order()});
}

/// The root and the ranks of its host, then the other hosts, one by one.
std::vector<int> order_from(int root, int size, const HostLayout& layout) {
  std::vector<int> order = {root};
  if (layout.size() == 0) {
    for (int i = 1; i < size; ++i) order.push_back((root + i) % size);
    return order;
  }
  for (const bool near : {true, false})
    for (const int rank : layout.order())
      if (rank != root && (layout.host_of(rank) == layout.host_of(root)) == near)
        order.push_back(rank);
  return order;
}

/// A chain for each host; for each rank, if there is one host only.
std::vector<std::vector<int>> chains_of(std::span<const int> order, const HostLayout& layout) {
  std::vector<std::vector<int>> chains;
  for (const int rank : order) {
    const bool is_near = layout.hosts() > 1 && !chains.empty() &&
                         layout.host_of(chains.back().front()) == layout.host_of(rank);
    if (!is_near) chains.emplace_back();
    chains.back().push_back(rank);
  }
  return chains;
}

Schedule broadcast(const ScheduleRequest& request) {
  if (request.algorithm == Algorithm::kMapped && request.layout.hosts() > 1)
    return broadcast_numa(request.rank, request.layout, request.root, request.count,
                          pipeline_of(request));
  if (request.algorithm == Algorithm::kMapped)
    return broadcast_mapped(request.rank, request.size, request.root, request.count,
                            pipeline_of(request));
  if (request.algorithm == Algorithm::kHierarchical)
    return broadcast_hierarchical(request.rank, request.layout, request.root, request.count,
                                  hosts_of(request));
  const std::vector<int> order = order_from(request.root, request.size, request.layout);
  if (counts_messages(request, request.count))
    return by_virtual_ranks(order, request.rank, [&](int virtual_rank) {
      return broadcast_binomial(virtual_rank, request.size, 0, request.count);
    });
  return broadcast_double_tree(
      request.rank, chains_of(order, request.layout), request.count,
      {.chunk_elements = broadcast_chunk(request.size, request.count, request.chunk_elements),
       .chunks_in_flight = request.blocks_in_flight});
}

Schedule reduce_scatter(const ScheduleRequest& request) {
  if (request.algorithm == Algorithm::kMapped && request.layout.hosts() > 1)
    return reduce_scatter_numa(request.rank, request.layout, request.counts, pipeline_of(request));
  if (request.algorithm == Algorithm::kMapped)
    return reduce_scatter_mapped(request.rank, request.size, request.counts, pipeline_of(request));
  if (request.algorithm == Algorithm::kHierarchical)
    return reduce_scatter_hierarchical(request.rank, request.layout, request.counts,
                                       hosts_of(request));
  if (request.algorithm == Algorithm::kRecursiveDoubling)
    return reduce_scatter_halving(request.rank, request.size, request.counts);
  return reduce_scatter_ring(request.rank, request.size, request.counts,
                             {.chunk_elements = request.chunk_elements,
                              .blocks_in_flight = request.blocks_in_flight,
                              .order = request.layout.order()});
}

/// A schedule whose messages go directly between the users' memory and the network.
Schedule unstaged_schedule(const ScheduleRequest& request) {
  const int rank = request.rank;
  const int size = request.size;
  const PipelineOptions pipeline{.chunk_elements = request.chunk_elements,
                                 .chunks_in_flight = request.blocks_in_flight};
  switch (request.kind) {
    case OperationKind::kAllreduce:
      return allreduce(request);
    case OperationKind::kBroadcast:
      return broadcast(request);
    case OperationKind::kAllgather:
      return allgather(request, pipeline);
    case OperationKind::kAlltoall:
      if (request.algorithm == Algorithm::kMapped)
        return alltoall_mapped(rank, size, request.counts, pipeline_of(request));
      if (travels_through_others(request)) return alltoall_bruck(rank, size, request.counts);
      return alltoall_pairwise(rank, size, request.counts, pipeline);
    case OperationKind::kReduceScatter:
      return reduce_scatter(request);
    case OperationKind::kGather:
      if (request.algorithm == Algorithm::kMapped)
        return gather_mapped(rank, size, request.root, request.counts, pipeline_of(request));
      return gather_linear(rank, size, request.root, request.counts,
                           {.pipeline = pipeline, .in_place = request.in_place});
    case OperationKind::kScatter:
      if (request.algorithm == Algorithm::kMapped)
        return scatter_mapped(rank, size, request.root, request.counts, pipeline_of(request));
      return scatter_linear(rank, size, request.root, request.counts,
                            {.pipeline = pipeline, .in_place = request.in_place});
    case OperationKind::kBarrier:
      return barrier_dissemination(rank, size);
    case OperationKind::kSend:
      return point_to_point(rank, size, request.root, request.peer, request.count, pipeline);
    case OperationKind::kReceive:
    case OperationKind::kJoin:
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet:
      break;
  }
  KOLO_CHECK(false);
  return {};
}

/// A schedule whose messages go between the network and memory that it reaches.
Schedule staged_schedule(const ScheduleRequest& request) {
  const bool stages_itself =
      request.kind == OperationKind::kAllreduce && request.algorithm == Algorithm::kHierarchical;
  Schedule schedule = unstaged_schedule(request);
  if (!request.staged || stages_itself) return schedule;
  return stage_messages(schedule, {.slots = request.blocks_in_flight,
                                   .passes_on = request.kind == OperationKind::kBroadcast});
}

/// The weight of a cache entry in ScheduleCache::Limits::steps.
std::size_t weight_of(const ScheduleRequest& request, const Schedule& schedule) {
  // The request is stored twice, and a count weighs a tenth of a step.
  return schedule.steps.size() + request.counts.size() / 5;
}

}  // namespace

std::uint64_t elements_of_parts(const ScheduleRequest& request) {
  const bool is_even_alltoall =
      request.kind == OperationKind::kAlltoall && request.counts.size() == 1;
  const auto size = static_cast<std::uint64_t>(request.size);
  return is_even_alltoall ? size * size * request.counts.front() : sum_of(request.counts);
}

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
    // Multiply by Steele & Vigna's constant; the shift moves its high bits down.
    hash = (hash ^ value) * 0xd1342543de82ef95u;
    hash ^= hash >> 32;
  };
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(request.kind), static_cast<std::uint64_t>(request.rank),
        static_cast<std::uint64_t>(request.size), static_cast<std::uint64_t>(request.root),
        static_cast<std::uint64_t>(request.peer), request.count, request.chunk_elements,
        static_cast<std::uint64_t>(request.blocks_in_flight),
        static_cast<std::uint64_t>(request.placement),
        static_cast<std::uint64_t>(request.algorithm), request.mapped_elements,
        static_cast<std::uint64_t>(request.pipeline_slots),
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
