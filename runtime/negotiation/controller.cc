#include "runtime/negotiation/controller.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

// How much longer than the coordinator another rank waits before it gives up on the coordinator.
constexpr std::chrono::seconds kCoordinatorGrace{10};

}  // namespace

Controller::Controller(const Communicator& communicator, ControlPlane& control_plane,
                       const Config& config, const Log& log)
    : communicator_(communicator),
      control_plane_(control_plane),
      config_(config),
      log_(log),
      cache_(static_cast<std::uint32_t>(config.cache_capacity)),
      coordinator_(communicator.ranks(), communicator.suffix()) {}

void Controller::add(Entry entry) {
  if (unannounced_.empty()) unannounced_since_ = entry.submitted_at;
  unannounced_bytes_ += entry.bytes();
  // Nobody else will tell the ranks that wait for it, and nothing fuses with it.
  flush_ |= !moves_data(entry.signature.kind);
  unannounced_.push_back(entry.name);
  std::string name = entry.name;
  const bool inserted = pending_.emplace(std::move(name), std::move(entry)).second;
  KOLO_CHECK(inserted);  // the table admits a name once
}

std::optional<Controller::Clock::time_point> Controller::next_announcement() const {
  if (unannounced_.empty()) return std::nullopt;
  return unannounced_since_ + std::chrono::microseconds(config_.batch_window_us);
}

Result<bool> Controller::announce(Clock::time_point now, bool flush) {
  if (unannounced_.empty()) return false;
  const bool due = flush || flush_ || communicator_.size() == 1 ||
                   unannounced_bytes_ >= static_cast<std::uint64_t>(config_.batch_size) ||
                   now >= *next_announcement();
  if (!due) return false;
  SlotSet slots;
  std::vector<Request> requests;
  for (const std::string& name : unannounced_) {
    const Entry& entry = pending_.at(name);
    const bool in_full = entry.absent || !entry.complaint.empty();
    const auto slot = in_full
                          ? std::nullopt
                          : cache_.find(name, entry.signature, entry.splits, communicator_.rank());
    if (slot) {
      slots.insert(*slot);
      ++counters_.cached;
    } else {
      requests.push_back({name, entry.signature, entry.absent, entry.splits, entry.complaint});
      ++counters_.requests;
    }
  }
  unannounced_.clear();
  unannounced_bytes_ = 0;
  flush_ = false;
  KOLO_TRY(send_ready(slots, requests));
  return true;
}

Status Controller::send_ready(const SlotSet& slots, const std::vector<Request>& requests) {
  if (is_coordinator()) {
    const auto now = Clock::now();
    KOLO_TRY(take_ready(0, slots, now));
    return take_requests(0, requests, now);
  }
  if (!slots.empty()) {
    std::string payload;
    slots.encode(payload);
    ++counters_.messages;
    KOLO_TRY(control_plane_.send(0, MessageKind::kReady, payload));
  }
  if (!requests.empty()) {
    ++counters_.messages;
    KOLO_TRY(control_plane_.send(0, MessageKind::kRequests, encode(requests)));
  }
  return {};
}

Status Controller::on_message(int peer, const Message& message) {
  const bool from_rank = is_coordinator() && peer != 0;
  const bool from_coordinator = !is_coordinator() && peer == 0;
  SlotSet slots;
  switch (message.kind) {
    case MessageKind::kReady:
      if (!from_rank || !SlotSet::decode(message.payload, cache_.size(), slots)) break;
      return take_ready(peer, slots, Clock::now());
    case MessageKind::kRequests: {
      if (!from_rank) break;
      KOLO_ASSIGN(const auto requests, decode_requests(message.payload));
      return take_requests(peer, requests, Clock::now());
    }
    case MessageKind::kAgreed:
      if (!from_coordinator || !SlotSet::decode(message.payload, cache_.size(), slots)) break;
      take_slots(slots);
      return {};
    case MessageKind::kResponses: {
      if (!from_coordinator) break;
      KOLO_ASSIGN(auto responses, decode_responses(message.payload));
      return take_responses(std::move(responses));
    }
    case MessageKind::kOffer:
    case MessageKind::kAnswer:
    case MessageKind::kDoorbell:
    case MessageKind::kGoodbye:
    case MessageKind::kAbort:
      break;
  }
  return KOLO_ERROR(kInternal,
                    "rank {}: unexpected or malformed negotiation message {} from rank {}",
                    communicator_.rank(), static_cast<int>(message.kind), peer);
}

Status Controller::take_ready(int rank, const SlotSet& slots, Clock::time_point now) {
  Status status;
  slots.for_each([&](std::uint32_t index) {
    const ResponseCache::Slot& slot = cache_.at(index);
    if (!status.ok()) return;
    Request request{slot.name, slot.signature};
    if (!slot.splits.empty()) request.splits = slot.splits[static_cast<std::size_t>(rank)];
    status = coordinator_.ready(rank, request, now);
  });
  return status;
}

Status Controller::take_requests(int rank, const std::vector<Request>& requests,
                                 Clock::time_point now) {
  for (const Request& request : requests) {
    KOLO_TRY(coordinator_.ready(rank, request, now));
  }
  return {};
}

Result<bool> Controller::decide() {
  if (!coordinator_.has_decisions()) return false;
  std::vector<Response> responses = coordinator_.take_decisions();
  SlotSet slots;
  const bool all_cached =
      std::all_of(responses.begin(), responses.end(), [&](const Response& response) {
        if (response.error || response.contributors != communicator_.size()) return false;
        const auto slot = cache_.find(response);
        if (slot) slots.insert(*slot);
        return slot.has_value();
      });
  counters_.messages += static_cast<std::uint64_t>(communicator_.size() - 1);
  if (all_cached) {
    std::string payload;
    slots.encode(payload);
    KOLO_TRY(control_plane_.send_to_others(MessageKind::kAgreed, payload));
    take_slots(slots);
  } else {
    KOLO_TRY(control_plane_.send_to_others(MessageKind::kResponses, encode(responses)));
    KOLO_TRY(take_responses(std::move(responses)));
  }
  return true;
}

void Controller::take_slots(const SlotSet& slots) {
  ++counters_.agreements;
  std::vector<Agreed>& agreed = agreed_.emplace_back();
  slots.for_each([&](std::uint32_t index) {
    const ResponseCache::Slot& slot = cache_.at(index);
    auto node = pending_.extract(slot.name);
    KOLO_CHECK(!node.empty());  // the coordinator counted this rank's bit
    Response response{slot.name, slot.signature, communicator_.size()};
    response.participants = communicator_.size();
    response.splits = slot.splits;
    agreed.push_back({std::move(response), std::move(node.mapped())});
  });
}

Status Controller::take_responses(std::vector<Response> responses) {
  ++counters_.agreements;
  std::vector<Agreed>& agreed = agreed_.emplace_back();
  for (Response& response : responses) {
    if (!response.error && response.signature.kind != OperationKind::kJoin) cache_.put(response);
    auto node = pending_.extract(response.name);
    if (node.empty()) {
      // Something that failed for lack of this rank. Of a join that did, all take note.
      if (response.error) {
        if (response.name == kJoinName) agreed.push_back({std::move(response), {}});
        continue;
      }
      if (!pending_.contains(kJoinName)) {
        return KOLO_ERROR(kInternal, "rank {}: response for {}, which it did not submit",
                          communicator_.rank(), response.name);
      }
      agreed.push_back({std::move(response), {}});
      lend(agreed.back());
      continue;
    }
    agreed.push_back({std::move(response), std::move(node.mapped())});
  }
  return {};
}

void Controller::lend(Agreed& agreed) {
  agreed.entry.name = agreed.response.name;
  agreed.entry.signature = agreed.response.signature;
  agreed.entry.absent = true;
  agreed.entry.submitted_at = Clock::now();
}

bool Controller::take_agreed(std::vector<Agreed>& agreed) {
  if (agreed_.empty()) return false;
  agreed = std::move(agreed_.front());
  agreed_.pop_front();
  return true;
}

Status Controller::check_timeouts(Clock::time_point now) {
  const std::chrono::seconds timeout(config_.operation_timeout_s);
  if (is_coordinator()) {
    const std::chrono::seconds stall(config_.stall_warning_s);
    for (const std::string& line : coordinator_.stalled(now, stall)) log_.warning("{}", line);
    coordinator_.expire(now, timeout);
    return {};
  }
  for (const auto& [name, entry] : pending_) {
    // Others may work on for as long as they like.
    if (entry.signature.kind == OperationKind::kJoin) continue;
    if (now - entry.submitted_at < timeout + kCoordinatorGrace) continue;
    return KOLO_ERROR(kTimeout,
                      "rank {}: rank 0 has not decided on tensor '{}' within {} s "
                      "(KOLO_OPERATION_TIMEOUT); it is stuck or unreachable",
                      communicator_.rank(), name, config_.operation_timeout_s);
  }
  return {};
}

std::string Controller::describe_pending() const {
  const auto first =
      std::min_element(pending_.begin(), pending_.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text = fmt::format("tensor '{}'", first->first);
  if (pending_.size() > 1) text += fmt::format(" and {} more", pending_.size() - 1);
  return text;
}

std::vector<Entry> Controller::take_pending() {
  std::vector<Entry> entries;
  entries.reserve(pending_.size());
  for (auto& [name, entry] : pending_) entries.push_back(std::move(entry));
  for (auto& list : agreed_) {
    for (Agreed& agreed : list) entries.push_back(std::move(agreed.entry));
  }
  pending_.clear();
  agreed_.clear();
  unannounced_.clear();
  unannounced_bytes_ = 0;
  flush_ = false;
  return entries;
}

}  // namespace kolo
