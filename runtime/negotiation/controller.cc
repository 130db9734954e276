#include "runtime/negotiation/controller.h"

#include "runtime/base/check.h"
#include "runtime/base/plain_bytes.h"
#include "runtime/submission/recorded.h"
#include "runtime/submission/split_table.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace kolo {
namespace {

// How much longer than the coordinator the other ranks wait before they give up on it.
constexpr std::chrono::seconds kCoordinatorGrace{10};

/// Leaves room for a frame header of the control plane.
constexpr std::size_t kLongestResponse = Transport::kLargestMessage - 64;
/// Most bytes that rank 0 sends for one response, a copy to each rank.
constexpr std::size_t kMostForAll = std::size_t{4} << 30;
/// So few splits are never too long.
constexpr std::size_t kManySplits = 1 << 20;

}  // namespace

Controller::Controller(const Communicator& communicator, ControlPlane& control_plane,
                       const Config& config, const Log& log, FlightRecorder* recorder)
    : communicator_(communicator),
      config_(config),
      log_(log),
      recorder_(recorder),
      relay_(communicator, control_plane, static_cast<int>(config.control_degree), *this),
      cache_(static_cast<std::uint32_t>(config.cache_capacity), communicator.size()),
      coordinator_(communicator.ranks(), communicator.suffix()),
      ready_(communicator.size()),
      plan_(communicator, control_plane),
      steps_(static_cast<std::uint32_t>(config.plan_lock)) {}

void Controller::add(EntryPtr entry) {
  unannounced_bytes_ += entry->weight();
  // Announce an operation without data at once. Other ranks wait for it, and nothing fuses with it.
  flush_ |= !moves_data(entry->signature.kind);
  waiting_.add(std::move(entry));
}

std::optional<Controller::Clock::time_point> Controller::next_batch() const {
  if (!waiting_.has_unannounced()) return std::nullopt;
  return waiting_.first_unannounced().submitted_at +
         std::chrono::microseconds(config_.batch_window_us);
}

/// Precondition: an entry waits to be announced.
bool Controller::is_due(Clock::time_point now, bool flush) const {
  return flush || flush_ || communicator_.size() == 1 ||
         unannounced_bytes_ >= static_cast<std::uint64_t>(config_.batch_size) ||
         now >= *next_batch();
}

std::optional<Controller::Clock::time_point> Controller::next_announcement() const {
  const auto here = plan_.is_on() ? plan_.due() : next_batch();
  const auto held = relay_.due();
  return here && held ? std::min(*here, *held) : here ? here : held;
}

void Controller::open(PlanNeighbours neighbours) {
  if (config_.plan_lock > 0) plan_.open(std::move(neighbours));
}

std::optional<std::uint32_t> Controller::slot_of(const Entry& entry) const {
  if (entry.absent || !entry.complaint.empty()) return std::nullopt;
  return cache_.find(entry.name, entry.signature, entry.splits, communicator_.rank());
}

Result<bool> Controller::announce(Clock::time_point now, bool flush) {
  if (plan_.is_on()) return announce_by_plan(now, flush);
  if (!waiting_.has_unannounced() || !is_due(now, flush)) return false;
  SlotsBySteps slots;
  std::vector<Request> requests;
  waiting_.announce([&](Entry& entry) {
    const auto slot = slot_of(entry);
    if (slot) {
      insert(slots, entry.step, *slot);
      ++counters_.cached;
    } else {
      requests.push_back({entry.name, entry.signature, entry.absent, shortened(entry.splits),
                          entry.complaint, entry.step, communicator_.rank()});
      ++counters_.requests;
      if (records())
        entry.record = recorder_->submitted(recorded(entry, SubmissionMode::kNegotiated));
    }
    return slot;
  });
  unannounced_bytes_ = 0;
  flush_ = false;
  if (records()) {
    for (const SlotsOfStep& some : slots)
      recorder_->announced(communicator_.id(), some.step, trace_time(now), some.slots.words());
  }
  KOLO_TRY(relay_.send_ready(slots, std::move(requests), now));
  return true;
}

Controller::Counters Controller::counters() const {
  Counters counters = counters_;
  counters.messages = relay_.messages() + plan_.messages();
  return counters;
}

Status Controller::on_message(int peer, const Message& message) {
  if (message.kind == MessageKind::kCount) return plan_.hear(peer, message.payload);
  // Rank 0 knows of every slot. A rank between may hear of one from below first.
  const auto slots =
      is_coordinator() ? cache_.size() : static_cast<std::uint32_t>(config_.cache_capacity);
  return relay_.on_message(peer, message, slots);
}

bool Controller::takes_told() {
  // Rank 0 has told it after all ranks left the plan, and this rank may have to hear of that.
  if (plan_.is_on()) settle_plan();
  return !plan_.is_on();
}

Result<bool> Controller::take_told(MessageKind kind, std::span<const std::byte> told) {
  if (kind == MessageKind::kPlan) return lock_plan(told);
  if (kind == MessageKind::kResponses) {
    KOLO_ASSIGN(auto responses, decode_responses(told));
    KOLO_TRY(take_responses(std::move(responses)));
    return true;
  }
  if (kind == MessageKind::kJoined) {
    set_joined(value_of<JoinedRank>(told));
    return joined_.has_value();
  }
  SlotSet slots;
  if (!SlotSet::decode(told, cache_.size(), slots)) return false;
  take_slots(slots);
  return true;
}

void Controller::set_joined(std::optional<JoinedRank> joined) {
  joined_ = joined;
  relay_.hold(!joined_);
}

Status Controller::take_ready(Places ranks, const SlotsBySteps& slots, Clock::time_point now) {
  Status status;
  for (const SlotsOfStep& some : slots) {
    some.slots.for_each([&](std::uint32_t slot) {
      if (status.ok()) status = take_ready(ranks, slot, some.step, now);
    });
  }
  return status;
}

Status Controller::take_ready(Places ranks, std::uint32_t slot, std::uint64_t step,
                              Clock::time_point now) {
  const bool counts = coordinator_.idle() && !coordinator_.is_anyone_late() &&
                      cache_.at(slot)->signature.group.empty();
  if (counts && ready_.add(ranks, slot, step, now) == ReadySlots::Added::kYes) return {};
  for (int i = 0; i < ranks.count; ++i)
    KOLO_TRY(take_ready(relay_.tree().rank_at(ranks.first + i), slot, step, now));
  return {};
}

Status Controller::take_ready(int rank, std::uint32_t slot, std::uint64_t step,
                              Clock::time_point now) {
  const Response& known = *cache_.at(slot);
  // Counting bits is not enough for a tensor that was announced in full, is a member of a group, or
  // that this rank is late for; nor after a rank has joined.
  if (!coordinator_.idle() || !known.signature.group.empty() ||
      coordinator_.is_late(rank, known.name))
    return take_ready_in_full(rank, slot, step, now);
  switch (ready_.add({*relay_.tree().place_of(rank)}, slot, step, now)) {
    case ReadySlots::Added::kYes:
      return {};
    case ReadySlots::Added::kOtherStep:
      return take_ready_in_full(rank, slot, step, now);
    case ReadySlots::Added::kTwice:
      break;
  }
  return KOLO_ERROR(kInternal, "rank {} announced tensor '{}' twice", rank, known.name);
}

Status Controller::take_ready_in_full(int rank, std::uint32_t slot, std::uint64_t step,
                                      Clock::time_point now) {
  KOLO_TRY(hand_to_coordinator(slot));
  const Response& remembered = *cache_.at(slot);
  Request request{.name = remembered.name, .signature = remembered.signature, .step = step};
  const bool is_scattered_to = remembered.signature.kind == OperationKind::kScatter &&
                               communicator_.index_of(remembered.signature.root) != rank;
  if (!remembered.splits.empty() && !is_scattered_to) {
    const auto splits =
        splits_of(remembered.splits, remembered.signature.kind, rank, communicator_.size());
    request.splits = shortened({splits.begin(), splits.end()});
  }
  return coordinator_.ready(rank, request, now);
}

Status Controller::hand_to_coordinator(std::uint32_t slot) {
  const auto partial = ready_.take_partial(slot);
  if (!partial) return {};
  for (const int place : partial->places)
    KOLO_TRY(take_ready_in_full(relay_.tree().rank_at(place), slot, partial->step, partial->since));
  return {};
}

Status Controller::take_request(const Request& request, Clock::time_point now) {
  const bool is_join = request.signature.kind == OperationKind::kJoin;
  if (is_join) {
    for (const std::uint32_t slot : ready_.partial()) KOLO_TRY(hand_to_coordinator(slot));
  } else if (ready_.has_partial()) {
    const auto slot = cache_.find(request.name);
    if (slot) KOLO_TRY(hand_to_coordinator(*slot));
  }
  KOLO_TRY(coordinator_.ready(request.rank, request, now));
  return is_join ? note_join(request.rank, request.signature) : Status();
}

Status Controller::note_join(int rank, const Signature& join) {
  const std::int64_t calls = join.shape.empty() ? 0 : join.shape.front();
  if (joined_ && joined_->calls <= calls) return {};
  set_joined(JoinedRank{.rank = rank, .calls = calls});
  return relay_.tell_all(MessageKind::kJoined, bytes_of(*joined_), /*directly=*/false);
}

Result<bool> Controller::decide() {
  if (plan_.is_on()) return false;
  if (!ready_.has_complete() && !coordinator_.has_decisions()) return false;
  SlotSet slots = ready_.take_complete();
  std::vector<Response> responses;
  for (Response& response : coordinator_.take_decisions()) {
    fail_if_too_long(response);
    const bool plain = !response.error && response.contributors == communicator_.size();
    const auto slot = plain ? cache_.find(response) : std::nullopt;
    if (slot) {
      slots.insert(*slot);
    } else {
      responses.push_back(std::move(response));
    }
  }
  // Send the slots first, because a response may change what a slot stands for.
  if (!slots.empty()) {
    std::string payload;
    slots.encode(payload);
    KOLO_TRY(relay_.tell_all(MessageKind::kAgreed, payload, /*directly=*/false));
    take_slots(slots);
    if (responses.empty()) {
      KOLO_TRY(note_steps(slots));
      return true;
    }
  }
  steps_.forget();
  const bool directly =
      std::any_of(responses.begin(), responses.end(), [](const Response& response) {
        return response.error || is_by_its_ranks(response.signature);
      });
  auto first = std::make_move_iterator(responses.begin());
  for (std::span<const Response> rest(responses); !rest.empty();) {
    const std::size_t before = rest.size();
    KOLO_TRY(relay_.tell_all(MessageKind::kResponses, encode_first(rest), directly));
    const auto end = first + static_cast<std::ptrdiff_t>(before - rest.size());
    KOLO_TRY(take_responses({first, end}));  // one message is one list, on every rank
    first = end;
  }
  return true;
}

void Controller::fail_if_too_long(Response& response) const {
  // The splits of an uneven alltoall are one number for every pair of ranks.
  if (response.splits.size() < kManySplits) return;
  const std::size_t bytes = encoded_bytes(response);
  const std::size_t room =
      std::min(kLongestResponse, kMostForAll / static_cast<std::size_t>(communicator_.size()));
  if (bytes <= room) return;
  response.error =
      KOLO_ERROR(kUnsupported,
                 "tensor '{}'{}: the splits of {} ranks take {} bytes, and a message of the "
                 "negotiation holds {}; call it on process sets of fewer ranks",
                 response.name, communicator_.suffix(), communicator_.size(), bytes, room);
  response.splits.clear();
}

void Controller::record_names(std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t slot = first; slot < end; ++slot) {
    const Response& response = *cache_.at(slot);
    const Signature& signature = response.signature;
    recorder_->name(slot, {.name = response.name,
                           .kind = signature.kind,
                           .type = signature.type,
                           .op = signature.op,
                           .bytes = signature.bytes(),
                           .process_set = communicator_.id()});
  }
}

void Controller::take_slots(const SlotSet& slots) {
  ++counters_.agreements;
  if (records()) recorder_->agreed(communicator_.id(), slots.words());
  std::vector<Agreed>& agreed = agreed_.emplace_back();
  agreed.reserve(slots.size());
  slots.for_each([&](std::uint32_t slot) {
    relay_.settle(slot);
    const std::shared_ptr<const Response>& response = cache_.at(slot);
    auto entry = waiting_.take(response->name, slot);
    KOLO_CHECK(entry);  // the coordinator counted this rank's announcement
    agreed.push_back({response, std::move(entry)});
  });
}

Status Controller::take_responses(std::vector<Response> responses) {
  ++counters_.agreements;
  std::vector<Agreed>& agreed = agreed_.emplace_back();
  for (Response& decided : responses) KOLO_TRY(take_response(std::move(decided), agreed));
  return {};
}

Status Controller::take_response(Response decided, std::vector<Agreed>& agreed) {
  if (decided.signature.kind == OperationKind::kJoin) set_joined(std::nullopt);
  // If this rank is listed, an announcement of it has crossed the response and is for the next
  // call.
  const bool missed = std::find(decided.missing.begin(), decided.missing.end(),
                                communicator_.rank()) != decided.missing.end();
  const auto slot = cache_.find(decided.name);
  if (slot) relay_.settle(*slot);
  auto entry = missed ? nullptr : waiting_.take(decided.name, slot);
  if (entry) record_agreed(*entry, slot);
  remember(decided, slot);
  const auto response = std::make_shared<const Response>(std::move(decided));
  if (entry) {
    agreed.push_back({response, std::move(entry)});
  } else if (response->error) {
    // It failed because this rank had not announced it. A failed join concerns all ranks.
    if (response->name == kJoinName) agreed.push_back({response, std::make_unique<Entry>()});
  } else if (waiting_.waits_by_name(kJoinName) || is_by_its_ranks(response->signature)) {
    agreed.push_back({response, unannounced_entry(*response)});
  } else {
    return KOLO_ERROR(kInternal, "rank {}: response for {}, which it did not submit",
                      communicator_.rank(), response->name);
  }
  return {};
}

void Controller::record_agreed(const Entry& entry, std::optional<std::uint32_t> slot) {
  if (!records()) return;
  recorder_->agreed(entry.record);
  if (slot) recorder_->settled(communicator_.id(), *slot);
}

void Controller::remember(const Response& response, std::optional<std::uint32_t> slot) {
  // Only what all ranks have announced may change a slot: a joined rank may have announced the
  // slot's previous content.
  if (response.error || !response.missing.empty()) return;
  const std::uint32_t known = cache_.size();
  cache_.put(response);
  if (records()) slot ? record_names(*slot, *slot + 1) : record_names(known, cache_.size());
}

EntryPtr Controller::unannounced_entry(const Response& response) {
  auto entry = std::make_unique<Entry>();
  entry->name = response.name;
  entry->signature = response.signature;
  entry->absent = true;
  entry->submitted_at = Clock::now();
  return entry;
}

bool Controller::take_agreed(std::vector<Agreed>& agreed) {
  if (agreed_.empty()) return false;
  agreed = std::move(agreed_.front());
  agreed_.pop_front();
  return true;
}

Status Controller::check_timeouts(Clock::time_point now, bool is_busy) {
  KOLO_TRY(check_plan(now));
  return is_coordinator() ? expire(now) : check_coordinator(now, is_busy);
}

Status Controller::expire(Clock::time_point now) {
  const std::chrono::seconds timeout(config_.operation_timeout_s);
  const std::chrono::seconds stall(config_.stall_warning_s);
  const std::chrono::seconds late = std::min({stall, timeout, Coordinator::kLateAndOther});
  for (const std::uint32_t slot : ready_.partial(now - late)) KOLO_TRY(hand_to_coordinator(slot));
  for (const std::string& line : coordinator_.stalled(now, stall)) log_.warning("{}", line);
  coordinator_.expire(now, timeout);
  return {};
}

Status Controller::check_coordinator(Clock::time_point now, bool is_busy) {
  const Entry* owed = nullptr;
  waiting_.for_each([&](const Entry& entry) {
    // A join may wait as long as the other ranks work.
    if (entry.signature.kind != OperationKind::kJoin) owed = &entry;
  });
  const bool has_decided =
      std::exchange(agreements_seen_, counters_.agreements) != counters_.agreements;
  if (owed == nullptr || is_busy || has_decided) {
    silent_since_.reset();
    return {};
  }
  if (!silent_since_) silent_since_ = now;
  if (now - *silent_since_ < std::chrono::seconds(config_.operation_timeout_s) + kCoordinatorGrace)
    return {};
  return KOLO_ERROR(kTimeout,
                    "rank {}: rank {} has not decided on tensor '{}'{} within {} s "
                    "(KOLO_OPERATION_TIMEOUT); it is stuck or unreachable",
                    communicator_.world().rank(), communicator_.ranks().front(), owed->name,
                    communicator_.suffix(), config_.operation_timeout_s);
}

std::vector<EntryPtr> Controller::take_pending() {
  std::vector<EntryPtr> entries = waiting_.take_all();
  for (auto& list : agreed_) {
    for (Agreed& agreed : list) entries.push_back(std::move(agreed.entry));
  }
  agreed_.clear();
  plan_.leave(Clock::now());
  plan_.end();
  unannounced_bytes_ = 0;
  flush_ = false;
  return entries;
}

}  // namespace kolo
