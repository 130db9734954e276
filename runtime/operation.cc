#include "runtime/operation.h"

#include "runtime/base/check.h"
#include "runtime/collectives/pipeline.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// Bytes of a window for each rank of the fullest host, below which a two-level all-reduce would
/// send crumbs through it.
constexpr std::size_t kSmallestShare = 16 << 10;
/// A block of what is moved through a window and not summed: stays in the second-level cache.
constexpr std::size_t kMovedBlock = 256 << 10;
/// Of all ranks together: up to here a message costs less than the notices that a block takes.
constexpr std::size_t kLargestMessage = 16 << 10;
/// Of all ranks together: from here on two levels are worth their rounds and notices. What all
/// ranks have to receive is less on the network then, too; a broadcast's chain has as little.
constexpr std::size_t kTwoLevels = 128 << 10;
constexpr std::size_t kTwoLevelsOfABroadcast = 2 << 20;
/// A piece in a window: below, notices and messages take longer than what two levels spare.
constexpr std::size_t kShortestPiece = 8 << 10;

/// The pieces that a lane of a two-level schedule has room for.
std::size_t places_of_a_lane(Collective collective, const HostLayout& layout) {
  if (collective == Collective::kBroadcast)
    return static_cast<std::size_t>(layout.most_on_a_host());
  if (collective == Collective::kAllgather) return static_cast<std::size_t>(layout.most_carried());
  return static_cast<std::size_t>(layout.size());
}

/// From neighbour to neighbour, on one level or two.
bool goes_round(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kAllgather ||
         collective == Collective::kReduceScatter;
}

}  // namespace

std::optional<ExchangeKind> exchange_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllreduce:
      return ExchangeKind::kAllreduce;
    case OperationKind::kBroadcast:
      return ExchangeKind::kBroadcast;
    case OperationKind::kAllgather:
      return ExchangeKind::kAllgather;
    case OperationKind::kAlltoall:
      return ExchangeKind::kAlltoall;
    case OperationKind::kReduceScatter:
      return ExchangeKind::kReduceScatter;
    case OperationKind::kBarrier:
      return ExchangeKind::kBarrier;
    case OperationKind::kGather:
    case OperationKind::kScatter:
    case OperationKind::kJoin:
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet:
    case OperationKind::kSend:
    case OperationKind::kReceive:
      break;
  }
  return std::nullopt;
}

Scales scales_of(const PlannedOperation& plan) {
  const Signature& signature = plan.entries.front()->signature;
  const std::int64_t divisor = signature.op == ReduceOp::kAverage ? plan.participants : 1;
  return scales_of(signature.type, signature.op, signature.prescale, signature.postscale, divisor);
}

std::optional<OneShot::Request> exchange_of(const PlannedOperation& plan,
                                            const Communicator& communicator) {
  if (plan.door != Door::kOrdered) return std::nullopt;
  const Entry& entry = *plan.entries.front();
  const Signature& signature = entry.signature;
  const auto kind = exchange_of(signature.kind);
  if (!kind) return std::nullopt;
  const Scales scales = scales_of(plan);
  return OneShot::Request{.kind = *kind,
                          .type = signature.type,
                          .op = signature.op,
                          .root = kind == ExchangeKind::kBroadcast
                                      ? communicator.index_of(signature.root).value_or(0)
                                      : 0,
                          .prescale = scales.pre,
                          .postscale = scales.post,
                          .input = entry.input,
                          .output = entry.output,
                          .count = plan.layout.input_elements,
                          .sequence = plan.sequence,
                          .before = plan.before};
}

std::uint64_t call_of(const PlannedOperation& plan, const Communicator& communicator) {
  const auto request = exchange_of(plan, communicator);
  return request ? OneShot::what_of(*request, communicator) : 0;
}

AllreducePolicy allreduce_policy(const Communicator& communicator, const PlaceSlots& slots,
                                 const LinkCosts& links, const Config& config) {
  HostLayout layout(communicator.world().hosts_of(communicator.ranks()),
                    communicator.world().places_of(communicator.ranks()));
  const std::size_t shared = slots.bytes_over_hosts();
  const auto least = kSmallestShare * static_cast<std::size_t>(layout.most_on_a_host());
  return {.network = {.layout = std::move(layout),
                      .inside = links.inside,
                      .across = links.across,
                      .window_bytes = shared >= least ? shared : 0},
          .can_map = slots.usable(),
          .traded_bytes = PairExchange::kLargest,
          .forced = algorithm_of(config.algorithm),
          .deterministic = config.deterministic != 0};
}

Operation::Operation(const Communicator& communicator, Transport& transport, const Device& device,
                     Arena& arena, HostWindow& window, DeviceWindow& devices, NcclLanes& nccl,
                     const PlaceSlots& slots, OneShot& one_shot, ScheduleCache& schedules,
                     const LinkCosts& links, const Config& config, Timeline& timeline)
    : communicator_(communicator),
      arena_(arena),
      window_(window),
      devices_(devices),
      nccl_(nccl),
      place_(slots.place()),
      slots_(slots),
      one_shot_(one_shot),
      schedules_(schedules),
      links_(links),
      config_(config),
      executor_(transport, device, &timeline) {
  for (const int rank : communicator.ranks()) {
    const auto index = static_cast<std::size_t>(rank);
    if (!window.windows().empty()) windows_.push_back(window.windows()[index]);
    if (!devices.windows().empty()) device_windows_.push_back(devices.windows()[index]);
  }
  if (devices.covers(communicator, place_) || devices.slot_bytes_of_hosts(place_) > 0)
    device_leaders_ = devices.device_leaders(communicator);
}

Status Operation::start(PlannedOperation plan, const AllreducePolicy* policy) {
  plan_ = std::move(plan);
  if (!own_policy_is_settled_) {
    own_policy_ = allreduce_policy(communicator_, slots_, links_, config_);
    own_policy_is_settled_ = slots_.settled();  // messages do not wait for it
  }
  policy_ = policy != nullptr ? policy : &own_policy_;
  choice_.reset();
  shared_ = false;
  started_at_ = Clock::now();
  small_ = Small::kNo;
  failure_ = {};
  to_announce_ = false;
  announced_ = {};
  handed_out_ = false;
  device_status_ = {};
  memory_.clear();
  for (const EntryPtr& entry : plan_.entries) memory_.push_back({entry->input, entry->output});
  if (plan_.entries.front()->signature.on_device) {
    const Status started = start_on_device();
    if (started.ok()) return {};
    Error error = started.error();
    error.message =
        fmt::format("rank {}: {}: {}", communicator_.world().rank(), describe(), error.message);
    device_status_ = error;  // nothing of it goes any further
    return error;
  }
  if (const auto request = exchange_of(plan_, communicator_)) {
    const bool combines_wholes = request->op == ReduceOp::kAdasum;
    if (!combines_wholes && one_shot_.takes(request->kind, request->bytes())) {
      small_ = Small::kWaits;
      return {};
    }
    if (one_shot_.adopt_trade(*request)) {
      small_ = Small::kRuns;
      return {};
    }
  }
  return start_schedule();
}

Status Operation::start_schedule() {
  to_announce_ = exchange_of(plan_, communicator_).has_value();
  MemoryBinding binding;
  KOLO_TRY(bind(binding));
  const WindowPlaces places = places_of(binding);
  std::shared_ptr<const Schedule> schedule = choose(places);
  KOLO_TRY(bind_scratch(*schedule, places, binding));
  executor_.start(std::move(schedule), std::move(binding), communicator_.tag_space(plan_.door),
                  plan_.sequence, communicator_.ranks(), call());
  return {};
}

void Operation::start_late() {
  small_ = Small::kNo;
  started_at_ = Clock::now();
  failure_ = start_schedule();
}

Operation::~Operation() { free_scratch(); }

bool Operation::advance() {
  if (phase_ != Phase::kNone) return advance_on_device();
  switch (small_) {
    case Small::kNo: {
      // Who has announced a call has published what it exchanges before.
      if (to_announce_ && !one_shot_.busy()) {
        announced_ = one_shot_.announce(*exchange_of(plan_, communicator_));
        compared_ = 0;
        to_announce_ = false;
      }
      const auto compared = one_shot_.compare(announced_, compared_);
      if (!compared.ok()) failure_ = compared.error();
      return executor_.advance();
    }
    case Small::kWaits:
      // Its caller may have begun it already and left it to this operation.
      if (!one_shot_.adopt()) {
        if (one_shot_.busy()) return false;
        const auto request = *exchange_of(plan_, communicator_);
        if (!one_shot_.tries(request)) {
          start_late();
          return true;
        }
        one_shot_.begin(request);
      }
      small_ = Small::kRuns;
      return true;
    case Small::kRuns:
      if (!one_shot_.advance()) return false;
      small_ = Small::kDone;
      carried_by_ = one_shot_.algorithm();
      if (one_shot_.declined()) start_late();
      return true;
    case Small::kDone:
      break;
  }
  return false;
}

std::string_view Operation::algorithm() const {
  if (over_nccl_) return "nccl";
  switch (small_) {
    case Small::kNo:
      return executor_.algorithm();
    case Small::kWaits:
      return one_shot_.algorithm(*exchange_of(plan_, communicator_));
    case Small::kRuns:
      return one_shot_.algorithm();
    case Small::kDone:
      break;
  }
  return carried_by_;
}

StepTrace::Costs Operation::costs() const {
  if (over_nccl_) return {};
  return small_ == Small::kNo ? executor_.costs() : StepTrace::Costs();
}

std::string Operation::dump_state() const {
  if (over_nccl_) return nccl_allreduce_.describe();
  switch (small_) {
    case Small::kNo:
      return executor_.dump_state();
    case Small::kWaits:
      return "waits for another exchange over the boards";
    case Small::kRuns:
    case Small::kDone:
      break;
  }
  return one_shot_.describe();
}

ScheduleRequest Operation::base_request() const {
  const Signature& signature = plan_.entries.front()->signature;
  ScheduleRequest request;
  request.rank = communicator_.rank();
  request.size = communicator_.size();
  request.count = fused_elements();
  request.root = communicator_.index_of(signature.root).value_or(0);
  request.counts = plan_.layout.counts;
  request.in_place = lies_in_place();
  request.meets_first = plan_.meets_first;
  request.chunk_elements = static_cast<std::uint64_t>(config_.chunk_size) / size_of(signature.type);
  request.blocks_in_flight = static_cast<int>(config_.chunks_in_flight);
  switch (signature.kind) {
    case OperationKind::kAllreduce:
      request.collective =
          signature.op == ReduceOp::kAdasum ? Collective::kAdasum : Collective::kAllreduce;
      break;
    case OperationKind::kBroadcast:
      request.collective = Collective::kBroadcast;
      break;
    case OperationKind::kAllgather:
      request.collective = Collective::kAllgather;
      break;
    case OperationKind::kAlltoall:
      request.collective = Collective::kAlltoall;
      break;
    case OperationKind::kReduceScatter:
      request.collective = Collective::kReduceScatter;
      break;
    case OperationKind::kGather:
      request.collective = Collective::kGather;
      break;
    case OperationKind::kScatter:
      request.collective = Collective::kScatter;
      break;
    case OperationKind::kSend:
      request.collective = Collective::kPointToPoint;
      request.peer = request.root;
      request.root = communicator_.rank();
      break;
    case OperationKind::kReceive:
      request.collective = Collective::kPointToPoint;
      request.peer = communicator_.rank();
      break;
    case OperationKind::kBarrier:
      request.collective = Collective::kBarrier;
      break;
    case OperationKind::kJoin:
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet:
      KOLO_CHECK(false);  // the agreement is all of them
  }
  return request;
}

std::shared_ptr<const Schedule> Operation::choose(const WindowPlaces& places) {
  ScheduleRequest request = base_request();
  const std::size_t element = size_of(plan_.entries.front()->signature.type);
  if (request.collective == Collective::kAllreduce) {
    const Signature& signature = plan_.entries.front()->signature;
    const double partial_width =
        static_cast<double>(size_of(partial_type(signature.type, signature.op))) /
        static_cast<double>(element);
    request.algorithm = policy_->choose(request.count * element, partial_width);
    if (request.algorithm == Algorithm::kMapped) {
      request.mapped_elements = summed_bytes(request.count * element) / element;
      request.mapped_lanes = kSummedLanes;
      request.direct =
          places.input != WindowPlaces::kNowhere && places.output != WindowPlaces::kNowhere;
    } else {
      choice_ = Choice{request.algorithm, request.count * element, partial_width};
    }
    if (!policy_->network.layout.is_in_order()) request.layout = policy_->network.layout;
    if (request.algorithm == Algorithm::kHierarchical) {
      request.layout = policy_->network.layout;
      const std::size_t window = policy_->network.window_bytes;
      request.mapped_elements = (window - place_list_bytes(window)) / element;
    }
    request.placement = plan_.entries.size() > 1 ? Placement::kPacked : Placement::kInPlace;
  } else if (is_mapped(request)) {
    request.algorithm = Algorithm::kMapped;
    request.mapped_elements =
        std::min(window_.slot_bytes(place_), kMappedLanes * kMovedBlock) / element;
  } else {
    const bool is_broadcast = request.collective == Collective::kBroadcast;
    const std::uint64_t elements = is_broadcast ? request.count : sum_of(request.counts);
    if (elements * element >= (is_broadcast ? kTwoLevelsOfABroadcast : kTwoLevels))
      take_two_levels(request, policy_->network.window_bytes, kShortestPiece);
    go_by_hosts(request);
  }
  return schedules_.get(request);
}

// A chain from the lowest rank of all goes through its host first, where numbers do.
void Operation::go_by_hosts(ScheduleRequest& request) const {
  if (!goes_round(request.collective) || request.layout.size() > 0) return;
  const HostLayout& layout = policy_->network.layout;
  const bool begins_elsewhere = request.collective == Collective::kBroadcast && request.root > 0 &&
                                layout.most_on_a_host() > 1;
  if (begins_elsewhere || !layout.is_in_order()) request.layout = layout;
}

// Where hosts have one rank each, messages are all there is.
void Operation::take_two_levels(ScheduleRequest& request, std::size_t window_bytes,
                                std::size_t shortest) const {
  if (!goes_round(request.collective)) return;
  const HostLayout& layout = policy_->network.layout;
  if (layout.hosts() < 2 || layout.most_on_a_host() < 2 ||
      window_bytes / kMappedLanes / places_of_a_lane(request.collective, layout) < shortest)
    return;
  request.algorithm = Algorithm::kHierarchical;
  request.layout = layout;
  request.mapped_elements = window_bytes / size_of(plan_.entries.front()->signature.type);
}

/// Whether windows carry what is no all-reduce: not where messages are faster.
bool Operation::is_mapped(const ScheduleRequest& request) const {
  if (!policy_->can_map || communicator_.size() == 1) return false;
  const std::size_t element = size_of(plan_.entries.front()->signature.type);
  const auto most = [&](std::uint64_t elements) {
    return elements * element > kLargestMessage &&
           window_.slot_bytes(place_) / kMappedLanes / element >=
               static_cast<std::uint64_t>(communicator_.size());
  };
  switch (request.collective) {
    case Collective::kBroadcast:
      return most(request.count);
    case Collective::kAllgather:
    case Collective::kAlltoall:
    case Collective::kReduceScatter:
      return most(sum_of(request.counts));
    case Collective::kAllreduce:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kBarrier:
    case Collective::kPointToPoint:
    case Collective::kAdasum:
      break;
  }
  return false;
}

void Operation::forget_works() {
  handed_out_ = true;
  for (EntryPtr& entry : plan_.entries) entry->work.reset();
}

std::uint64_t Operation::fused_elements() const {
  // A receive from oneself has its send beside it.
  if (plan_.door == Door::kPointToPoint) return plan_.entries.front()->signature.elements();
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < plan_.entries.size(); ++i)
    count += plan_.entries[i]->signature.elements() + gap_after(i);
  return count;
}

PlannedOperation Operation::finish() {
  free_scratch();
  return std::exchange(plan_, {});
}

std::string Operation::describe() const {
  const Entry& first = *plan_.entries.front();
  std::string text = fmt::format("{} '{}'", to_string(first.signature.kind), first.name);
  if (plan_.entries.size() > 1) text += fmt::format(" and {} more", plan_.entries.size() - 1);
  return text + communicator_.suffix();
}

}  // namespace kolo
