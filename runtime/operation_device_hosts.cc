// Large operations on the accelerators' memory that go over the network. What that sends and
// receives lies in memory of the device that the network cards reach (DeviceNetwork), or in pinned
// memory of the host, which the devices write and read: piece by piece, so that copying and the
// network work at once, and that memory is bounded. Of an all-reduce over several hosts the devices
// of a host sum for their host, its ranks drive a slice of the network each, and the devices of a
// host share the result (allreduce_hierarchical.cc, staged); so have broadcasts, allgathers and
// reduce-scatters two levels, and all else is what it is on the host, but for its messages
// (staged_messages.cc). Here is when these are taken, and over what. Token holder only.
#include "runtime/collectives/pipeline.h"
#include "runtime/operation.h"

#include <algorithm>

namespace kolo {
namespace {

/// Of a piece: shorter ones take longer to be handed in and waited for than to be copied.
constexpr std::int64_t kShortestPart = 4;
/// Two levels move no less than such a part of a piece through the devices' windows: below, handing
/// it in is what it takes.
constexpr std::size_t kMappedParts = 16;
/// And no less than so many bytes, which are some elements of every type.
constexpr std::size_t kSmallestPart = 64;
/// A part of each rank of a lane: what a device sums at a time.
constexpr std::size_t kLeastOfALane = 256;
/// What goes from rank to rank is cut into so many pieces, if they are not too short then: half of
/// them are on their way, and half of what the others take is hidden behind them.
constexpr std::int64_t kPiecesOfAMessage = 2 * kMappedLanes;
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
    request.mapped_elements = devices_.slot_bytes_of_hosts(place_) / element;
    request.owners = device_leaders_;
  }
  // Short enough for every lane to have a block, where that leaves pieces that are worth it.
  const std::int64_t pieces =
      request.layout.most_on_a_host() * request.layout.hosts() * kMappedLanes;
  request.chunk_elements = piece_elements(request.count * element, pieces);
  return request;
}

// The ranks choose alike: by what they have agreed on.
std::optional<ScheduleRequest> Operation::request_in_pieces() const {
  ScheduleRequest request = base_request();
  const auto size = static_cast<std::uint64_t>(request.size);
  const std::size_t element = size_of(plan_.entries.front()->signature.type);
  std::uint64_t of_a_rank = request.count;  // of each, or of all
  std::uint64_t message = request.count;    // to another, about
  switch (request.collective) {
    case Collective::kBroadcast:
    case Collective::kPointToPoint:
      break;
    case Collective::kAllgather:
    case Collective::kReduceScatter:
    case Collective::kGather:
    case Collective::kScatter:
      of_a_rank = sum_of(request.counts);
      message = of_a_rank / size;
      break;
    case Collective::kAlltoall:
      of_a_rank = sum_of(request.counts) / size;
      message = of_a_rank / size;
      break;
    case Collective::kAllreduce:
    case Collective::kBarrier:
    case Collective::kAdasum:
      return std::nullopt;
  }
  if (of_a_rank * element < static_cast<std::uint64_t>(config_.device_chunk)) return std::nullopt;
  if (is_mapped(request)) return std::nullopt;  // the host's window carries it
  // The device's kernels sum no inputs of a half type with float32 partial sums.
  const Signature& signature = plan_.entries.front()->signature;
  if (request.collective == Collective::kReduceScatter && request.size > 2 &&
      partial_type(signature.type, signature.op) != signature.type)
    return std::nullopt;
  request.staged = true;
  request.blocks_in_flight = kMappedLanes;
  request.chunk_elements = piece_elements(message * element, kPiecesOfAMessage);
  const auto shortest =
      std::max(static_cast<std::size_t>(config_.device_chunk) / kMappedParts, kSmallestPart);
  if (policy_->network.layout.most_on_a_host() < kMostSources)
    take_two_levels(request, devices_.slot_bytes_of_hosts(place_), shortest);
  go_by_hosts(request);
  return request;
}

std::uint64_t Operation::piece_elements(std::uint64_t bytes, std::int64_t pieces) const {
  const std::size_t element = size_of(plan_.entries.front()->signature.type);
  const std::int64_t least = std::max<std::int64_t>(config_.device_chunk / kShortestPart, 1);
  const std::int64_t piece =
      std::clamp(static_cast<std::int64_t>(bytes) / pieces, least, config_.device_chunk);
  const auto elements = std::max<std::uint64_t>(static_cast<std::uint64_t>(piece) / element, 1);
  return elements > kCacheLineElements ? elements - elements % kCacheLineElements : elements;
}

bool Operation::maps_inside_hosts() const {
  const std::size_t element = size_of(plan_.entries.front()->signature.type);
  const std::size_t lane = devices_.slot_bytes_of_hosts(place_) / kMappedLanes / element;
  const auto most = static_cast<std::size_t>(policy_->network.layout.most_on_a_host());
  return lane >= most * kLeastOfALane;
}

// Network cards are for what goes to other hosts: inside one, pieces go through the windows, or
// through memory of the host.
bool Operation::is_networked(const ScheduleRequest& request) const {
  if (!devices_.network().is_direct) return false;
  const HostLayout& layout = policy_->network.layout;
  if (layout.most_on_a_host() == 1) return true;
  if (request.collective == Collective::kPointToPoint)
    return layout.host_of(request.root) != layout.host_of(request.peer);
  return request.algorithm == Algorithm::kHierarchical && request.mapped_elements > 0;
}

Status Operation::bind_staging(const ScheduleRequest& request, const Schedule& schedule,
                               MemoryBinding& binding) {
  if (schedule.staging_elements == 0) return {};
  const SpaceLayout layout(binding, schedule.staging_elements, schedule.partial_staging_elements);
  KOLO_ASSIGN(scratch_, arena_.allocate(layout.bytes, is_networked(request) ? MemoryKind::kNetworked
                                                                            : MemoryKind::kPinned));
  binding.staging = scratch_.data();
  binding.partial_staging = scratch_.data() + layout.partials_begin;
  binding.networked = scratch_.region();
  if (back_stream_ == nullptr) {
    KOLO_ASSIGN(back_stream_, devices_.accelerator()->new_stream());
  }
  // Whoever still uses the output had `stream_` wait.
  KOLO_ASSIGN(const auto begun, stream_->record());
  KOLO_TRY(back_stream_->wait(*begun));
  binding.back_stream = back_stream_.get();
  return {};
}

}  // namespace kolo
