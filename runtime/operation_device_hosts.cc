// An all-reduce of the accelerators' memory over several hosts: the devices of a host sum for their
// host, its ranks drive a slice of the network each, and the devices of a host share the result.
// What the network sends and receives lies in memory of the device that the network cards reach
// (DeviceNetwork), or in pinned memory of the host, which the devices write and read: piece by
// piece, so that copying and the network work at once. The schedule says all of it
// (allreduce_hierarchical.cc, staged); here is when it is taken, and over what. Token holder only.
#include "runtime/collectives/pipeline.h"
#include "runtime/operation.h"

#include <algorithm>

namespace kolo {
namespace {

/// Of a piece: shorter ones take longer to be handed in and waited for than to be copied.
constexpr std::int64_t kShortestPart = 4;
/// A part of each rank of a lane: what a device sums at a time.
constexpr std::size_t kLeastOfALane = 256;
/// Ranks of a host whose memory a device sums at once (Combination::sources).
constexpr int kMostSources = 32;

}  // namespace

bool Operation::runs_over_hosts() const {
  const Signature& signature = plan_.entries.front()->signature;
  if (signature.kind != OperationKind::kAllreduce || signature.op == ReduceOp::kAdasum)
    return false;
  const int hosts = policy_->network.layout.hosts();
  if (hosts < 2 || policy_->network.layout.most_on_a_host() > kMostSources) return false;
  if (policy_->forced && *policy_->forced != Algorithm::kHierarchical &&
      *policy_->forced != Algorithm::kMapped)
    return false;
  // Of two hosts every element's sum has one order, whatever it is fused with; of more it has not.
  if (policy_->deterministic) return hosts == 2;
  return fused_elements() * size_of(signature.type) >=
         static_cast<std::uint64_t>(config_.device_chunk);
}

ScheduleRequest Operation::request_over_hosts() const {
  ScheduleRequest request = base_request();
  request.algorithm = Algorithm::kHierarchical;
  request.layout = policy_->network.layout;
  request.staged = true;
  request.blocks_in_flight = kMappedLanes;
  const std::size_t element = size_of(plan_.entries.front()->signature.type);
  if (maps_inside_hosts()) {
    request.mapped_elements = devices_.slot_bytes_of_hosts() / element;
    request.owners = device_leaders_;
  }
  // Short enough for every lane to have a block, where that leaves pieces that are worth it.
  const std::int64_t pieces =
      request.layout.most_on_a_host() * request.layout.hosts() * kMappedLanes;
  const std::int64_t part = static_cast<std::int64_t>(request.count * element) / pieces;
  const std::int64_t least = std::max<std::int64_t>(config_.device_chunk / kShortestPart, 1);
  request.chunk_elements = std::max<std::uint64_t>(
      static_cast<std::uint64_t>(std::clamp(part, least, config_.device_chunk)) / element, 1);
  if (request.chunk_elements > kCacheLineElements)
    request.chunk_elements -= request.chunk_elements % kCacheLineElements;
  return request;
}

bool Operation::maps_inside_hosts() const {
  const std::size_t element = size_of(plan_.entries.front()->signature.type);
  const std::size_t lane = devices_.slot_bytes_of_hosts() / kMappedLanes / element;
  const auto most = static_cast<std::size_t>(policy_->network.layout.most_on_a_host());
  return devices_.covers_hosts(communicator_) && lane >= most * kLeastOfALane;
}

// Network cards are for what goes to other hosts: inside one, pieces go through the windows, or
// through memory of the host.
bool Operation::is_networked() const {
  return devices_.network().is_direct &&
         (maps_inside_hosts() || policy_->network.layout.most_on_a_host() == 1);
}

Status Operation::bind_staging(const Schedule& schedule, MemoryBinding& binding) {
  if (schedule.staging_elements == 0) return {};
  const std::size_t bytes = schedule.staging_elements * size_of(binding.type);
  KOLO_ASSIGN(scratch_, arena_.allocate(
                            bytes, is_networked() ? MemoryKind::kNetworked : MemoryKind::kPinned));
  binding.staging = scratch_.data();
  binding.networked = scratch_.region();
  if (back_stream_ == nullptr) {
    KOLO_ASSIGN(back_stream_, devices_.accelerator()->new_stream());
  }
  // It need not wait for `stream_` to begin: no result comes back before the host has seen that
  // this rank's part of it has left.
  binding.back_stream = back_stream_.get();
  return {};
}

}  // namespace kolo
