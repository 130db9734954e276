#include "runtime/cycle/group.h"

#include "runtime/base/check.h"
#include "runtime/cycle/peers.h"
#include "runtime/fusion/fusion_plan.h"
#include "runtime/memory/plan_neighbours.h"
#include "runtime/submission/prepare.h"
#include "runtime/submission/split_table.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

// Rank 0 decides as soon as fewer than this many negotiated operations run: what becomes ready
// meanwhile gathers, so that fusion grows with the load and an idle link never waits. In-order
// operations do not count: they may wait for a rank that waits for the decision.
constexpr std::size_t kBusyOperations = 2;

Error no_memory(const Entry& entry, const RowLayout& layout) {
  return KOLO_ERROR(kOutOfMemory,
                    "{} '{}': there is no memory for its output of shape {}; the other ranks have "
                    "theirs",
                    to_string(entry.signature.kind), entry.name, to_string(layout.output_shape));
}

}  // namespace

Group::Group(Communicator members, int partition, const RankServices& rank, Waker& waker,
             const NcclSite& site, const Config& config, const Log& log)
    : communicator_(std::move(members)),
      table_(waker, static_cast<std::uint64_t>(config.batch_size)),
      control_plane_(rank.transport, communicator_),
      nccl_(site, communicator_, control_plane_),
      controller_(communicator_, control_plane_, config, log, &rank.flight_recorder),
      point_to_point_(communicator_, control_plane_, config),
      departures_(communicator_.size()),
      slots_(communicator_, rank.window, partition, log),
      exchange_(communicator_, recent_calls_, rank.window, rank.device, rank.transport,
                control_plane_),
      services_{communicator_, slots_, exchange_, nccl_},
      operations_(services_),
      audit_(*this) {
  done_call_->complete(
      {}, {.contributors = communicator_.size(), .participants = communicator_.size()});
}

void Group::open(const HostWindow& window, ExchangeUse use) {
  exchange_.open(slots_.partition(), use);
  controller_.open(plan_neighbours(window, communicator_, slots_.partition()));
  slots_.open();
}

// --- Submission.

bool Group::drain(CycleContext& context) {
  std::vector<EntryPtr>& drained = context.drained;
  drained.clear();
  flush_ |= table_.drain(drained);
  context.trace.drained(drained);
  bool moved = !drained.empty();
  EntryPtr join;
  for (EntryPtr& entry : drained) {
    if (entry->signature.kind == OperationKind::kJoin) {
      join = std::move(entry);
    } else {
      controller_.add(std::move(entry));
    }
  }

  drained.clear();
  ordered_.drain(drained);
  context.trace.drained(drained);
  moved |= !drained.empty();
  for (EntryPtr& entry : drained) {
    if (is_message(*entry)) {
      context.trace.message(*entry);
      if (entry->signature.kind == OperationKind::kReceive) open_links_to_senders(context, *entry);
      if (!entry->complaint.empty()) ordered_.finish_message();  // its caller has the error
      context.failures.note(point_to_point_.add(std::move(entry)));
    } else if (!entry->complaint.empty()) {
      refuse(context, std::move(entry));
    } else {
      plan_ordered(context, std::move(entry));
    }
  }
  if (join) {
    // Only now do the in-order calls before the join have their numbers.
    join->signature.shape = {static_cast<std::int64_t>(calls())};
    controller_.add(std::move(join));
  }
  return moved;
}

void Group::plan_ordered(CycleContext& context, EntryPtr entry) {
  PlannedOperation operation{SubmissionMode::kInOrder,
                             operations_.take_sequence(SubmissionMode::kInOrder)};
  operation.participants = communicator_.size();
  operation.contributors = {operation.participants};
  const SplitTable splits = table_in_order(entry->signature.kind, entry->splits);
  operation.layout = layout_of(entry->signature, splits, communicator_);
  operation.entries.push_back(std::move(entry));
  operation.meets_first = meets_first(operation);
  operation.before = history_.bits();
  const std::uint64_t fingerprint = call_of(operation, communicator_);
  history_.add(fingerprint);
  context.trace.planned(communicator_, operation, fingerprint);
  operations_.plan(std::move(operation));
}

// A refused call takes a number, too: otherwise later calls would meet other calls of other ranks.
void Group::refuse(CycleContext& context, EntryPtr entry) {
  const std::uint64_t sequence = operations_.take_sequence(SubmissionMode::kInOrder);
  history_.add(kRefusedCall);
  Error error = refusal_of(*entry, communicator_.world().rank());
  recent_calls_.add_refused(sequence, error.message);
  context.trace.refused(communicator_, *entry, sequence, error);
  ordered_.finish_one();
  entry->work->complete(std::move(error), {});
}

bool Group::meets_first(const PlannedOperation& operation) {
  const Signature& signature = operation.signature();
  if (!is_rooted(signature.kind)) return false;
  // The exchange bounds how far ahead ranks run.
  const Exchange::Request call = *exchange_of(operation, communicator_);
  if (!signature.on_device && exchange_.limits().take(call.kind, call.bytes())) return false;
  bytes_ahead_ += bytes_ahead(operation, communicator_);
  if (bytes_ahead_ <= thresholds::kOneWayAhead) return false;
  bytes_ahead_ = 0;
  return true;
}

bool Group::begin_exchange(CycleContext& context, Exchange::Request& request) {
  // Behind earlier in-order calls, this call would overtake them.
  if (communicator_.abort().raised() || aborted() || exchange_.busy() || !ordered_.idle())
    return false;
  // A rank that needs nothing more may leave at once, and the others still wait for its word.
  if (!slots_.settled() || slots_.has_message()) return false;
  if (controller_.joined()) return false;  // see CallAudit::check_joined()
  request.sequence = calls();
  request.before = history_.bits();
  const bool is_two_rank = exchange_.limits().take_two_rank(request.kind, request.bytes());
  if (!is_two_rank && !exchange_.tries(request)) return false;
  context.trace.exchange_begun();
  exchange_.begin(request);
  return true;
}

void Group::end_exchange(CycleContext& context, const Exchange::Request& request) {
  operations_.take_sequence(SubmissionMode::kInOrder);
  history_.add(exchange_.fingerprint());
  recent_calls_.add(request.sequence, exchange_.fingerprint());
  context.trace.exchange_ended(communicator_, request, exchange_);
}

// --- Negotiation.

bool Group::announce(CycleContext& context, Clock::time_point now) {
  return context.failures.take_moved(controller_.announce(now, std::exchange(flush_, false)));
}

bool Group::decide(CycleContext& context, Clock::time_point now) {
  const bool has_followed = context.failures.take_moved(controller_.follow_plan(now));
  const bool is_coordinator = communicator_.rank() == 0;
  if (is_coordinator && (operations_.has_planned(SubmissionMode::kNegotiated) ||
                         operations_.running_of(SubmissionMode::kNegotiated) >= kBusyOperations))
    return has_followed;
  const bool has_decided =
      context.failures.take_moved(is_coordinator ? controller_.decide() : controller_.pass_on(now));
  return has_decided || has_followed;
}

// --- Fusion and planning.

void Group::open_links_to_senders(CycleContext& context, const Entry& receive) {
  const int sender = receive.signature.root;
  for (const int rank : communicator_.ranks())
    if (sender == rank || sender == kAnyRank) context.peers.open_link(rank);
}

bool Group::plan(CycleContext& context) {
  bool moved = false;
  std::vector<Agreed>& agreed = context.agreed;
  while (controller_.take_agreed(agreed)) {
    plan_list(context, agreed);
    if (communicator_.id() == 0) ++context.lists_planned;
    moved = true;
  }
  for (auto& settled : point_to_point_.take_settled()) {
    start_message(context, std::move(settled));
    moved = true;
  }
  return moved;
}

void Group::plan_list(CycleContext& context, std::vector<Agreed>& agreed) {
  std::vector<const Response*> responses;
  responses.reserve(agreed.size());
  for (const Agreed& one : agreed) responses.push_back(one.response.get());
  const FusionLimits limits{static_cast<std::uint64_t>(context.config.fusion_threshold),
                            static_cast<std::uint64_t>(context.config.fusion_max_tensor)};
  for (const FusedGroup& fused : plan_fusion(responses, limits)) {
    const Response& first = *agreed[fused.front()].response;
    PlannedOperation operation{SubmissionMode::kNegotiated,
                               operations_.take_sequence(SubmissionMode::kNegotiated)};
    operation.participants = first.participants;
    operation.entries.reserve(fused.size());
    operation.contributors.reserve(fused.size());
    for (const std::size_t index : fused) {
      operation.entries.push_back(std::move(agreed[index].entry));
      operation.contributors.push_back(agreed[index].response->contributors);
    }
    if (fused.size() == 1) {
      operation.layout = layout_of(first.signature, first.splits, communicator_);
      Entry& entry = *operation.entries.front();
      if (entry.allocate) entry.output = entry.allocate(operation.layout.output_shape);
    }
    context.trace.planned(communicator_, operation, 0);
    operations_.plan(std::move(operation));
  }
  for (Agreed& one : agreed) {
    if (!one.response->runs()) conclude(context, one);
  }
}

void Group::conclude(CycleContext& context, Agreed& agreed) {
  const Response& response = *agreed.response;
  context.trace.agreed(agreed.entry);
  if (response.error) {
    if (response.signature.kind == OperationKind::kJoin) table_.restart_unnamed();
    const Signature& own = agreed.entry->signature;
    if (own.kind == OperationKind::kRemoveProcessSet && agreed.entry->work != nullptr)
      context.groups.reopen(static_cast<std::uint32_t>(own.root));
    return finish(context, *agreed.entry, *response.error, {.value = response.result});
  }
  Outcome outcome{.contributors = response.contributors,
                  .participants = response.participants,
                  .value = response.result};
  const OperationKind kind = response.signature.kind;
  if (kind == OperationKind::kJoin) {
    table_.restart_unnamed();
    ++joins_;
    joined_ = {std::move(agreed.entry), std::move(outcome),
               operations_.numbered(SubmissionMode::kNegotiated)};
    return end_join(context);
  }
  if (kind == OperationKind::kAddProcessSet || kind == OperationKind::kRemoveProcessSet) {
    auto changed = context.change_process_sets(response.signature);
    if (!changed.ok()) return finish(context, *agreed.entry, std::move(changed).error(), {});
    outcome.value = *changed;
  }
  finish(context, *agreed.entry, {}, std::move(outcome));
}

void Group::end_join(CycleContext& context) {
  if (!joined_ || operations_.done_below(SubmissionMode::kNegotiated) < joined_->after) return;
  const EntryPtr entry = std::move(joined_->entry);
  Outcome outcome = std::move(joined_->outcome);
  joined_.reset();
  finish(context, *entry, {}, std::move(outcome));
}

void Group::start_message(CycleContext& context, PointToPoint::Settled settled) {
  if (settled.error) return finish(context, *settled.entry, *std::move(settled.error), {});
  PlannedOperation operation{SubmissionMode::kPointToPoint, settled.sequence};
  operation.participants = 1;
  operation.contributors = {1, 1};
  operation.layout = layout_of(settled.entry->signature, {}, communicator_);
  operation.entries.push_back(std::move(settled.entry));
  if (settled.own_send) {
    operation.entries.front()->input = settled.own_send->input;
    operation.layout.input_elements = operation.layout.output_elements;
    operation.entries.push_back(std::move(settled.own_send));
  }
  context.trace.planned(communicator_, operation, 0);
  // At once, whatever else runs: the other rank does the same, and neither waits for a slot.
  operations_.start_message(context, std::move(operation));
}

// --- Starting and completing.

bool Group::start(CycleContext& context) {
  // First, before anything runs that may be all this rank does.
  const bool told = tell_of_slots(context);
  return operations_.start_planned(context) || told;
}

bool Group::tell_of_slots(CycleContext& context) {
  const auto message = slots_.take_message();
  if (!message) return false;
  if (communicator_.rank() == 0) {
    const auto size = static_cast<std::size_t>(communicator_.size());
    context.failures.note(context.peers.tell_others(
        *this, MessageKind::kSlots, std::vector(size, *message), Abort::kNoCulprit));
  } else if (!context.peers.has_left(communicator_.ranks().front())) {
    context.failures.note(control_plane_.send(0, MessageKind::kSlots, *message));
  }
  return true;
}

bool Group::complete(CycleContext& context) {
  bool moved = false;
  std::size_t ended_calls = 0;
  std::optional<Error> clash;
  for (const auto& operation : operations_.running()) {
    if (context.failures.any() || clash || !operation->enqueued()) continue;
    if (operation->status().ok()) {
      if (operation->works_completed()) continue;
      complete_works(context, *operation);
      if (operation->mode() == SubmissionMode::kInOrder) ++ended_calls;
      moved = true;
      continue;
    }
    Error error = operation->status().error();
    error.message = fmt::format("{}: {}", operation->describe(), error.message);
    if (operation->mode() == SubmissionMode::kInOrder && error.code == ErrorCode::kMismatch) {
      clash = std::move(error);
    } else {
      context.failures.note(Failure{std::move(error)});
    }
  }
  // The memory of the others is still in use on the device.
  if (!context.failures.any() && !clash) moved |= operations_.recycle_done();
  if (clash) {
    // A message of an earlier call that is never received tells more than its consequence.
    audit_.check_messages(context);
    context.failures.note(Failure{*std::move(clash)});
  }
  if (moved) end_join(context);
  audit_.note_ended(context, ended_calls);
  return moved;
}

void Group::complete_works(CycleContext& context, Operation& operation) {
  context.trace.ended(communicator_, operation, {});
  const PlannedOperation& plan = operation.plan();
  // Before its waiters know: they may remove the set at once.
  if (plan.mode == SubmissionMode::kInOrder) {
    recent_calls_.add(plan.sequence, operation.call());
    ordered_.finish_one();
  }
  if (plan.mode == SubmissionMode::kNegotiated) table_.release(plan.entries);
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const Entry& entry = *plan.entries[i];
    if (entry.work == nullptr) continue;  // entry of a joined rank that contributes zeros
    if (plan.mode == SubmissionMode::kPointToPoint) ordered_.finish_message();
    const bool memory_lacked =
        entry.allocate && entry.output == nullptr && plan.layout.output_elements > 0;
    Status status = memory_lacked ? no_memory(entry, plan.layout) : Status();
    context.trace.finished(communicator_, entry, status);
    entry.work->complete(std::move(status), {.contributors = plan.contributors[i],
                                             .participants = plan.participants,
                                             .received_splits = plan.layout.received,
                                             .value = is_message(entry) ? entry.signature.root : 0,
                                             .on_device = operation.device_event()});
  }
  operation.drop_works();
}

void Group::finish(CycleContext& context, const Entry& entry, Status status, Outcome outcome) {
  if (entry.work == nullptr) return;  // entry of a joined rank that contributes zeros
  context.trace.finished(communicator_, entry, status);
  complete_entry(entry, std::move(status), std::move(outcome));
}

void Group::complete_entry(const Entry& entry, Status status, Outcome outcome) {
  // First the name, then the waiter: it may submit the next one at once.
  if (is_message(entry)) {
    ordered_.finish_message();
  } else {
    table_.release(entry.name);
  }
  entry.work->complete(std::move(status), std::move(outcome));
}

// --- What happens to it.

Status Group::on_message(int rank, const Message& message) {
  switch (message.kind) {
    case MessageKind::kReady:
    case MessageKind::kReadyOf:
    case MessageKind::kRequests:
    case MessageKind::kAgreed:
    case MessageKind::kResponses:
    case MessageKind::kJoined:
    case MessageKind::kPlan:
    case MessageKind::kCount:
      return controller_.on_message(rank, message);
    case MessageKind::kOffer:
    case MessageKind::kAnswer:
      return point_to_point_.on_message(rank, message);
    case MessageKind::kSlots:
      return slots_.hear(rank, message.text());
    case MessageKind::kNcclId:
      return nccl_.on_message(message.text());
    case MessageKind::kCall:
      return audit_.on_question(rank, message);
    case MessageKind::kDoorbell:  // the next step looks by itself
    case MessageKind::kBeat:
    case MessageKind::kShutdownNotice:
    case MessageKind::kAbort:
    case MessageKind::kSetAborted:
      break;
  }
  return {};
}

void Group::on_departure(int rank) {
  const auto index = communicator_.index_of(rank);
  if (index && is_member()) point_to_point_.peer_left(*index);
}

void Group::close_removed(CycleContext& context) {
  const Error error = KOLO_ERROR(kInvalidArgument, "rank {}: process set {} was removed",
                                 communicator_.world().rank(), communicator_.id());
  close(error);
  // What runs already runs to its end.
  std::vector<EntryPtr> entries = controller_.take_pending();
  for (EntryPtr& entry : point_to_point_.take_pending()) entries.push_back(std::move(entry));
  table_.drain(entries);
  ordered_.drain(entries);
  for (const EntryPtr& entry : entries) finish(context, *entry, error, {});
}

void Group::close(const Error& error) {
  table_.close(error);
  ordered_.close(error);
}

void Group::abort(CycleContext& context, const Error& error) {
  if (aborted_.exchange(true)) return;
  close(error);
  nccl_.abort(error);
  std::vector<EntryPtr> entries = take_waiting();
  for (EntryPtr& entry : operations_.take_planned()) entries.push_back(std::move(entry));
  std::vector<std::shared_ptr<Work>> works;
  for (const auto& operation : operations_.running()) {
    if (operation->works_completed()) continue;
    context.trace.ended(communicator_, *operation, error);
    for (const EntryPtr& entry : operation->plan().entries) {
      if (entry->work == nullptr) continue;  // entry of a joined rank that contributes zeros
      context.trace.finished(communicator_, *entry, error);
      works.push_back(entry->work);
    }
    operation->drop_works();
  }
  for (const auto& work : works) work->complete(error, {});
  for (const EntryPtr& entry : entries) finish(context, *entry, error, {});
}

std::vector<EntryPtr> Group::take_waiting() {
  std::vector<EntryPtr> entries = controller_.take_pending();
  for (EntryPtr& entry : point_to_point_.take_pending()) entries.push_back(std::move(entry));
  if (joined_) entries.push_back(std::move(joined_->entry));
  joined_.reset();
  // Entries that were submitted before the queues were closed.
  table_.drain(entries);
  ordered_.drain(entries);
  return entries;
}

std::vector<EntryPtr> Group::take_entries(CycleContext& context, const Error& error) {
  std::vector<EntryPtr> entries = operations_.take_all(
      [&](const Operation& operation) { context.trace.ended(communicator_, operation, error); });
  for (EntryPtr& entry : take_waiting()) entries.push_back(std::move(entry));
  return entries;
}

// Work in NCCL ends once all ranks have enqueued it.
bool Group::drain_nccl(Clock::duration longest) {
  if (!nccl_.wanted()) return true;
  const auto until = Clock::now() + longest;
  const auto running = operations_.running();
  while (!std::all_of(running.begin(), running.end(),
                      [](const auto& operation) { return operation->done(); })) {
    if (Clock::now() >= until) return false;
    operations_.advance();
  }
  return true;
}

Progress Group::progress(int reader) const {
  Progress progress{controller_.counters().agreements, {}, point_to_point_.count_unstarted(reader)};
  // Messages are numbered per receiver, so their numbers mean nothing here.
  for (const SubmissionMode mode : {SubmissionMode::kNegotiated, SubmissionMode::kInOrder})
    progress.operations[static_cast<std::size_t>(mode)] = operations_.done_below(mode);
  progress.refused = recent_calls_.refused_before(operations_.done_below(SubmissionMode::kInOrder));
  const auto running = operations_.running();
  progress.messages_cut += static_cast<std::uint64_t>(
      std::count_if(running.begin(), running.end(), [&](const auto& operation) {
        return operation->mode() == SubmissionMode::kPointToPoint &&
               !operation->works_completed() &&
               communicator_.index_of(operation->message_peer()) == reader;
      }));
  return progress;
}

}  // namespace kolo
