// Choosing an algorithm, and the least-recently-used cache of schedules. Progress token holder.
#include "runtime/collectives/chooser.h"

#include "runtime/base/check.h"
#include "runtime/collectives/allreduce_mapped.h"
#include "runtime/collectives/broadcast_chain.h"

#include <initializer_list>
#include <utility>

namespace kolo {
namespace {

constexpr int kMappedLanes = 4;

}  // namespace

Schedule make_schedule(const ScheduleRequest& request) {
  switch (request.collective) {
    case Collective::kAllreduce:
      if (request.mapped_elements >= kMappedLanes) {
        return allreduce_mapped(
            request.rank, request.size, request.count,
            {.block_elements = request.mapped_elements / kMappedLanes, .lanes = kMappedLanes});
      }
      return allreduce_ring(request.rank, request.size, request.count,
                            {.chunk_elements = request.chunk_elements,
                             .blocks_in_flight = request.blocks_in_flight,
                             .placement = request.placement});
    case Collective::kBroadcast:
      return broadcast_chain(
          request.rank, request.size, request.root, request.count,
          {.chunk_elements = request.chunk_elements, .chunks_in_flight = request.blocks_in_flight});
  }
  KOLO_CHECK(false);
  return {};
}

std::shared_ptr<const Schedule> ScheduleCache::get(const ScheduleRequest& request) {
  if (const auto found = by_request_.find(request); found != by_request_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().schedule;
  }
  auto schedule = std::make_shared<const Schedule>(make_schedule(request));
  steps_ += schedule->steps.size();
  entries_.push_front({request, schedule});
  by_request_.emplace(request, entries_.begin());

  while (entries_.size() > 1 && (entries_.size() > limits_.entries || steps_ > limits_.steps)) {
    steps_ -= entries_.back().schedule->steps.size();
    by_request_.erase(entries_.back().request);
    entries_.pop_back();
  }
  return schedule;
}

std::size_t ScheduleCache::Hash::operator()(const ScheduleRequest& request) const noexcept {
  std::uint64_t hash = 0;
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(request.collective), static_cast<std::uint64_t>(request.rank),
        static_cast<std::uint64_t>(request.size), static_cast<std::uint64_t>(request.root),
        request.count, request.chunk_elements, static_cast<std::uint64_t>(request.blocks_in_flight),
        static_cast<std::uint64_t>(request.placement), request.mapped_elements}) {
    // Steele & Vigna's mixing multiplier; the shift brings its high bits down.
    hash = (hash ^ value) * 0xd1342543de82ef95u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace kolo
