// Routes of device memory. Where all ranks map each other's device windows, a schedule runs there.
// Large calls over several hosts go in pieces: devices, staging memory and the network take turns.
// Everything else is staged whole through pinned host memory.
#include "runtime/planning/route_on_device.h"

#include "runtime/collectives/pipeline.h"
#include "runtime/device/partial_sums.h"

#include <algorithm>
#include <optional>

namespace kolo {

using namespace thresholds;

namespace {

/// Pieces that a message between two ranks is cut into, unless they get too short. Half of them are
/// on their way, and hide half of the other ranks' work.
constexpr std::int64_t kPiecesOfAMessage = 2 * kPipelineSlots;

std::uint64_t piece_elements(const Policy& policy, DataType type, std::uint64_t bytes,
                             std::int64_t pieces) {
  const std::int64_t least = std::max<std::int64_t>(policy.device_chunk / kDeviceShortestPart, 1);
  const std::int64_t piece =
      std::clamp(static_cast<std::int64_t>(bytes) / pieces, least, policy.device_chunk);
  const auto elements =
      std::max<std::uint64_t>(static_cast<std::uint64_t>(piece) / size_of(type), 1);
  return elements > kCacheLineElements ? elements - elements % kCacheLineElements : elements;
}

bool runs_on_devices(const CallShape& call, const Resources& resources) {
  if (call.mode == SubmissionMode::kPointToPoint) return false;
  if (resources.size == 1) return true;
  if (!resources.devices.map_windows || call.op == ReduceOp::kAdasum) return false;
  const std::size_t slot = resources.devices.slot_bytes / kPipelineSlots / size_of(call.type);
  if (slot < static_cast<std::size_t>(resources.size) * kDeviceSlotShare) return false;
  return moves_data(call.kind);
}

ScheduleRequest request_on_devices(const CallShape& call, const Resources& resources,
                                   const Policy& policy) {
  ScheduleRequest request = base_request(call, resources, policy);
  request.algorithm = Algorithm::kMapped;
  const bool sums = call.kind == OperationKind::kAllreduce && call.op != ReduceOp::kAdasum;
  const std::size_t element = size_of(call.type);
  const std::size_t slot = resources.devices.slot_bytes;
  request.mapped_elements =
      (sums ? slot : std::min(slot, kPipelineSlots * kDeviceMovedBlock)) / element;
  if (resources.size == 1)  // only copies, of any length
    request.mapped_elements = std::max(request.mapped_elements, kPipelineSlots * kDeviceMovedBlock);
  if (sums) request.owners = resources.devices.leaders;
  return request;
}

bool runs_over_hosts(const CallShape& call, const Resources& resources, const Policy& policy) {
  if (call.kind != OperationKind::kAllreduce || call.op == ReduceOp::kAdasum) return false;
  const int hosts = resources.layout.hosts();
  if (hosts < 2 || resources.layout.most_on_a_host() > kDeviceSources) return false;
  if (policy.forced && *policy.forced != Algorithm::kHierarchical &&
      *policy.forced != Algorithm::kMapped)
    return false;
  // Between two hosts, an element's sum has one order whatever it is fused with. Between more hosts
  // it does not.
  if (policy.deterministic) return hosts == 2;
  return call.device_elements * size_of(call.type) >=
         static_cast<std::uint64_t>(policy.device_chunk);
}

/// Whether pieces of an all-reduce pass through the devices' windows inside every host.
bool maps_inside_hosts(const CallShape& call, const Resources& resources) {
  const std::size_t slot =
      resources.devices.slot_bytes_of_hosts / kPipelineSlots / size_of(call.type);
  return slot >= static_cast<std::size_t>(resources.layout.most_on_a_host()) * kDeviceSumShare;
}

ScheduleRequest request_over_hosts(const CallShape& call, const Resources& resources,
                                   const Policy& policy) {
  ScheduleRequest request = base_request(call, resources, policy);
  request.algorithm = Algorithm::kHierarchical;
  request.layout = resources.layout;
  request.staged = true;
  request.blocks_in_flight = kPipelineSlots;
  const std::size_t element = size_of(call.type);
  if (maps_inside_hosts(call, resources)) {
    request.mapped_elements = resources.devices.slot_bytes_of_hosts / element;
    request.owners = resources.devices.leaders;
  }
  // Short enough that every pipeline slot has a block, unless pieces get too short to pay.
  const std::int64_t pieces =
      request.layout.most_on_a_host() * request.layout.hosts() * kPipelineSlots;
  request.chunk_elements = piece_elements(policy, call.type, request.count * element, pieces);
  return request;
}

/// How much a call moves, in elements.
struct Parts {
  std::uint64_t of_a_rank = 0;  ///< each rank's, or all ranks'
  std::uint64_t message = 0;    ///< from one rank to another, approximately
};

/// Nothing for calls that do not go in pieces.
std::optional<Parts> parts_of(const ScheduleRequest& request) {
  if (request.kind == OperationKind::kAllreduce || !moves_data(request.kind)) return std::nullopt;
  if (request.counts.empty()) return Parts{request.count, request.count};
  const auto size = static_cast<std::uint64_t>(request.size);
  const std::uint64_t all = elements_of_parts(request);
  const bool is_alltoall = request.kind == OperationKind::kAlltoall;
  return is_alltoall ? Parts{all / size, all / size / size} : Parts{all, all / size};
}

/// A call in pieces, other than an all-reduce. Nothing for small calls, and for calls that the
/// windows of host memory carry.
std::optional<ScheduleRequest> request_in_pieces(const CallShape& call, const Resources& resources,
                                                 const Policy& policy) {
  ScheduleRequest request = base_request(call, resources, policy);
  const auto parts = parts_of(request);
  if (!parts) return std::nullopt;
  const std::size_t element = size_of(call.type);
  if (parts->of_a_rank * element < static_cast<std::uint64_t>(policy.device_chunk))
    return std::nullopt;
  if (moves_through_windows(request, resources, call.type)) return std::nullopt;
  // The device's kernels cannot sum inputs of a half type with float32 partial sums.
  if (request.kind == OperationKind::kReduceScatter && request.size > 2 && partial_width(call) > 1)
    return std::nullopt;
  request.staged = true;
  request.blocks_in_flight = kPipelineSlots;
  request.chunk_elements =
      piece_elements(policy, call.type, parts->message * element, kPiecesOfAMessage);
  const std::size_t shortest = std::max(
      static_cast<std::size_t>(policy.device_chunk) / kDeviceTwoLevelParts, kDeviceSmallestPart);
  if (resources.layout.most_on_a_host() < kDeviceSources)
    take_two_levels(request, resources.layout, call.type, resources.devices.slot_bytes_of_hosts,
                    shortest);
  go_by_hosts(request, resources.layout);
  return request;
}

/// Whether the network sends from and receives into device memory. Network cards serve only
/// messages to other hosts; inside a host, pieces go through the windows or through host memory.
bool network_is_direct(const ScheduleRequest& request, const Resources& resources) {
  if (!resources.devices.network_is_direct) return false;
  const HostLayout& layout = resources.layout;
  if (layout.most_on_a_host() == 1) return true;
  if (request.kind == OperationKind::kSend)
    return layout.host_of(request.root) != layout.host_of(request.peer);
  return request.algorithm == Algorithm::kHierarchical && request.mapped_elements > 0;
}

}  // namespace

Route route_on_device(const CallShape& call, const Resources& resources, const Policy& policy) {
  if (resources.devices.use_nccl && call.kind == OperationKind::kAllreduce)
    return {.carrier = CarrierKind::kNccl};
  CallShape spaced = call;
  spaced.elements = call.device_elements;
  std::optional<ScheduleRequest> request;
  if (runs_on_devices(call, resources)) {
    request = request_on_devices(spaced, resources, policy);
  } else if (runs_over_hosts(call, resources, policy)) {
    request = request_over_hosts(spaced, resources, policy);
  } else {
    request = request_in_pieces(spaced, resources, policy);
  }
  if (!request)
    return {.carrier = CarrierKind::kStaged, .request = host_request(call, resources, policy)};
  const bool direct = network_is_direct(*request, resources);
  return {
      .carrier = CarrierKind::kDevice, .request = *std::move(request), .network_is_direct = direct};
}

}  // namespace kolo
