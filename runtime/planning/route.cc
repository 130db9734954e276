#include "runtime/planning/route.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/pipeline.h"
#include "runtime/device/partial_sums.h"
#include "runtime/planning/route_on_device.h"

#include <algorithm>

namespace kolo {

using namespace thresholds;

namespace {

/// Kinds whose data goes from neighbour to neighbour, on one level or two.
bool goes_round(OperationKind kind) {
  return kind == OperationKind::kBroadcast || kind == OperationKind::kAllgather ||
         kind == OperationKind::kReduceScatter;
}

/// Elements of all ranks together; of a broadcast, the root's. All-reduces and messages between two
/// ranks have none.
std::uint64_t moved_elements(const ScheduleRequest& request) {
  return request.kind == OperationKind::kBroadcast ? request.count : elements_of_parts(request);
}

bool gathers_or_scatters(OperationKind kind) {
  return kind == OperationKind::kGather || kind == OperationKind::kScatter;
}

/// The least block between these limits with which `bytes` fit into so many pipeline slots.
std::size_t fitting_block(std::size_t bytes, std::size_t slots, std::size_t least,
                          std::size_t most) {
  return std::clamp(round_up(ceil_div(bytes, slots), kLeastMovedBlock), least, most);
}

/// Bytes of a block of a move through windows. Where data goes one way, readers have nothing to do
/// until the first piece is packed. So all pieces together are about as many as pipeline slots.
std::size_t moved_block(const ScheduleRequest& request, const Resources& resources,
                        std::size_t element) {
  const auto readers = static_cast<std::size_t>(request.size - 1);
  const bool has_part_for_each =
      request.kind == OperationKind::kAlltoall || request.kind == OperationKind::kReduceScatter;
  if (has_part_for_each && resources.shared_cores > 0)
    return std::min(kMovedBlock * readers, kMostMovedBlock);
  if (request.kind == OperationKind::kBroadcast) {
    const bool crowded = resources.shared_cores > 0;
    return fitting_block(request.count * element, kPipelineSlots,
                         crowded ? kMovedBlock : kLeastMovedBlock,
                         crowded ? kMostMovedBlock : kMovedBlock);
  }
  if (!gathers_or_scatters(request.kind)) return kMovedBlock;
  const auto root = static_cast<std::size_t>(request.root);
  const std::size_t moved = (sum_of(request.counts) - request.counts[root]) * element;
  const std::size_t piece = fitting_block(moved, kPipelineSlots, kLeastMovedBlock, kMovedBlock);
  const bool scatters = request.kind == OperationKind::kScatter;  // its slots hold a piece a reader
  return std::min(scatters ? piece * readers : piece, kMovedBlock);
}

/// Number of pieces that a pipeline slot of a two-level schedule must hold.
std::size_t pieces_of_a_slot(OperationKind kind, const HostLayout& layout) {
  if (kind == OperationKind::kBroadcast) return static_cast<std::size_t>(layout.most_on_a_host());
  if (kind == OperationKind::kAllgather) return static_cast<std::size_t>(layout.most_carried());
  return static_cast<std::size_t>(layout.size());
}

std::size_t summed_bytes(const CallShape& call, const Resources& resources, std::uint64_t bytes) {
  std::size_t block = bytes < kLargeSum ? kSummedBlock : kLargeSummedBlock;
  if (resources.shared_cores > 0)
    block = fitting_block(bytes, kAllreducePipelineSlots, kSummedBlock, kMostSummedBlock);
  const std::size_t lists = offset_list_bytes(call.tensors, resources.slot_bytes);
  return std::min(resources.slot_bytes - lists, kAllreducePipelineSlots * block);
}

/// Ranks that sum where ranks wait for cores. Empty: all ranks sum.
std::vector<int> summing_ranks(const Resources& resources) {
  const int count = kSummingRanksACore * resources.shared_cores;
  std::vector<int> summing;
  if (count >= resources.size) return summing;
  for (int i = 0; i < count; ++i) {
    // The i-th of these runs on the i-th core, whether ranks are bound in blocks or in turn.
    const int begin = i * resources.size / count;
    const int end = (i + 1) * resources.size / count;
    const int in_turn = begin + ((i - begin) % count + count) % count;
    summing.push_back(in_turn < end ? in_turn : begin);
  }
  return summing;
}

/// Whether an operation through windows, of `bytes` bytes of all ranks together or for an
/// all-reduce of each, goes by NUMA nodes: a node then reads data of another one once. Partial sums
/// lie in the windows, where there is no room for wider types. A deterministic sum's order must not
/// depend on the size.
bool goes_by_nodes(const CallShape& call, const Resources& resources, const Policy& policy,
                   std::uint64_t bytes) {
  if (resources.nodes.hosts() < 2 || resources.nodes.most_on_a_host() < kRanksANode ||
      bytes < kByNodes)
    return false;
  const bool sums =
      call.kind == OperationKind::kAllreduce || call.kind == OperationKind::kReduceScatter;
  if (sums) return !policy.deterministic && partial_width(call) == 1;
  return call.kind == OperationKind::kBroadcast || call.kind == OperationKind::kAllgather;
}

void choose_allreduce_schedule(const CallShape& call, const Resources& resources,
                               const Policy& policy, ScheduleRequest& request) {
  const std::size_t element = size_of(call.type);
  const std::uint64_t bytes = request.count * element;
  request.algorithm = choose_allreduce(resources, policy, bytes, partial_width(call));
  if (request.algorithm == Algorithm::kMapped) {
    request.mapped_elements = summed_bytes(call, resources, bytes) / element;
    request.pipeline_slots = kAllreducePipelineSlots;
    request.owners = summing_ranks(resources);
  }
  if (request.algorithm == Algorithm::kMapped && goes_by_nodes(call, resources, policy, bytes)) {
    request.layout = resources.nodes;
  } else if (!resources.layout.is_in_order()) {
    request.layout = resources.layout;
  }
  if (request.algorithm == Algorithm::kHierarchical) {
    request.layout = resources.layout;
    const std::size_t window = network_of(resources, policy).window_bytes;
    request.mapped_elements = (window - offset_list_bytes(call.tensors, window)) / element;
  }
  request.placement = call.tensors > 1 ? Placement::kPacked : Placement::kInPlace;
}

}  // namespace

std::string_view to_string(CarrierKind carrier) {
  switch (carrier) {
    case CarrierKind::kExchange:
      return "exchange";
    case CarrierKind::kSchedule:
      return "schedule";
    case CarrierKind::kDevice:
      return "device";
    case CarrierKind::kStaged:
      return "staged";
    case CarrierKind::kNccl:
      return "nccl";
  }
  return "";
}

Network network_of(const Resources& resources, const Policy& policy) {
  const std::size_t least =
      kTwoLevelWindowShare * static_cast<std::size_t>(resources.layout.most_on_a_host());
  const std::size_t shared = resources.slot_bytes_over_hosts;
  return {.layout = resources.layout,
          .inside = policy.inside,
          .across = policy.across,
          .window_bytes = shared >= least ? shared : 0};
}

double partial_width(const CallShape& call) {
  return static_cast<double>(size_of(partial_type(call.type, call.op))) /
         static_cast<double>(size_of(call.type));
}

std::size_t offset_list_bytes(std::size_t tensors, std::size_t slot_bytes) {
  if (tensors < 2) return 0;
  const std::size_t lists = 2 * tensors * sizeof(std::uint64_t);
  const std::size_t bytes = round_up(lists, kOffsetListGranule);
  return bytes <= slot_bytes / kOffsetListShare ? bytes : 0;
}

std::uint64_t device_gap(DataType type, std::uint64_t elements) {
  const std::uint64_t granule = std::max<std::uint64_t>(kDeviceLoad / size_of(type), 1);
  return (granule - elements % granule) % granule;
}

Algorithm choose_allreduce(const Resources& resources, const Policy& policy, std::uint64_t bytes,
                           double partial_width) {
  if (resources.maps_windows && policy.forced.value_or(Algorithm::kMapped) == Algorithm::kMapped)
    return Algorithm::kMapped;
  if (policy.forced && *policy.forced != Algorithm::kMapped) return *policy.forced;
  // Sends what the other rank's two-rank exchange sends.
  if (resources.size == 2 && bytes <= kTwoRankExchange) return Algorithm::kRecursiveDoubling;
  return cheapest(network_of(resources, policy), bytes, policy.deterministic, partial_width);
}

ScheduleRequest base_request(const CallShape& call, const Resources& resources,
                             const Policy& policy) {
  ScheduleRequest request;
  request.kind = call.kind;
  request.rank = resources.rank;
  request.size = resources.size;
  request.count = call.elements;
  request.root = call.root;
  request.counts = call.counts;
  request.in_place = call.in_place;
  request.meets_first = call.meets_first;
  request.chunk_elements = static_cast<std::uint64_t>(policy.chunk_bytes) / size_of(call.type);
  request.blocks_in_flight = static_cast<int>(policy.chunks_in_flight);
  if (call.kind == OperationKind::kSend) {
    request.peer = call.root;
    request.root = resources.rank;
  } else if (call.kind == OperationKind::kReceive) {
    request.kind = OperationKind::kSend;  // the schedule of the sending rank
    request.peer = resources.rank;
  } else if (call.op == ReduceOp::kAdasum && call.kind == OperationKind::kAllreduce) {
    request.algorithm = Algorithm::kRecursiveDoubling;
  }
  return request;
}

bool moves_through_windows(const ScheduleRequest& request, const Resources& resources,
                           DataType type) {
  if (!resources.maps_windows || resources.size == 1) return false;
  const std::size_t element = size_of(type);
  const std::size_t by_messages = request.kind == OperationKind::kGather    ? kGatherByMessages
                                  : request.kind == OperationKind::kScatter ? kScatterByMessages
                                                                            : kMoveByMessages;
  return moved_elements(request) * element > by_messages &&
         resources.slot_bytes / kPipelineSlots / element >=
             static_cast<std::uint64_t>(resources.size);
}

// Where every host has one rank, there are only messages.
void take_two_levels(ScheduleRequest& request, const HostLayout& layout, DataType type,
                     std::size_t window_bytes, std::size_t shortest_piece) {
  if (!goes_round(request.kind) || layout.hosts() < 2 || layout.most_on_a_host() < 2 ||
      window_bytes / kPipelineSlots / pieces_of_a_slot(request.kind, layout) < shortest_piece)
    return;
  request.algorithm = Algorithm::kHierarchical;
  request.layout = layout;
  request.mapped_elements = window_bytes / size_of(type);
}

// What goes from rank to rank by number would leave a host more than once.
void go_by_hosts(ScheduleRequest& request, const HostLayout& layout) {
  if (!goes_round(request.kind) || request.layout.size() > 0) return;
  const bool has_chains = request.kind == OperationKind::kBroadcast && layout.hosts() > 1 &&
                          layout.most_on_a_host() > 1;
  if (has_chains || !layout.is_in_order()) request.layout = layout;
}

// A deterministic sum's order must not depend on the links.
bool takes_few_rounds(const Network& network, const Policy& policy, std::uint64_t bytes,
                      bool sums) {
  if (!sums || !policy.deterministic) return few_rounds_pay(network, bytes, sums);
  const auto chunk = static_cast<std::uint64_t>(policy.chunk_bytes);
  return network.layout.size() > 3 && bytes <= chunk / kChunkToSmall;
}

ScheduleRequest host_request(const CallShape& call, const Resources& resources,
                             const Policy& policy) {
  ScheduleRequest request = base_request(call, resources, policy);
  const std::size_t element = size_of(call.type);
  if (request.kind == OperationKind::kAllreduce) {
    if (call.op != ReduceOp::kAdasum) choose_allreduce_schedule(call, resources, policy, request);
  } else if (moves_through_windows(request, resources, call.type)) {
    request.algorithm = Algorithm::kMapped;
    request.mapped_elements =
        std::min(resources.slot_bytes, kPipelineSlots * moved_block(request, resources, element)) /
        element;
    if (goes_by_nodes(call, resources, policy, moved_elements(request) * element))
      request.layout = resources.nodes;
  } else {
    const Network network = network_of(resources, policy);
    const bool is_broadcast = request.kind == OperationKind::kBroadcast;
    const bool sums = request.kind == OperationKind::kReduceScatter;
    const std::uint64_t bytes = moved_elements(request) * element;
    if ((sums || request.kind == OperationKind::kAllgather) &&
        takes_few_rounds(network, policy, bytes, sums)) {
      request.algorithm = Algorithm::kRecursiveDoubling;
      return request;
    }
    if (bytes >= (is_broadcast ? kTwoLevelBroadcast : kTwoLevels))
      take_two_levels(request, resources.layout, call.type, network.window_bytes, kTwoLevelPiece);
    go_by_hosts(request, resources.layout);
  }
  return request;
}

Route route(const CallShape& call, const Resources& resources, const Policy& policy) {
  if (call.on_device) return route_on_device(call, resources, policy);
  // Adasum combines whole vectors in pairs, which the exchange cannot do.
  const bool in_order = call.mode == SubmissionMode::kInOrder && call.op != ReduceOp::kAdasum;
  if (in_order && call.may_exchange &&
      resources.exchange.take(call.kind, call.input_elements * size_of(call.type)))
    return {.carrier = CarrierKind::kExchange};
  return {.carrier = CarrierKind::kSchedule, .request = host_request(call, resources, policy)};
}

}  // namespace kolo
