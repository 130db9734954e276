// How a controller's messages go up and down the ControlTree. Progress token holder only.
#include "runtime/base/plain_bytes.h"
#include "runtime/negotiation/controller.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

/// How long a rank between holds what some of the ranks below it are not ready for. Longer than
/// they differ in most steps, and much less than anybody waits before it complains of others.
constexpr std::chrono::milliseconds kHold{100};

/// Precedes what is told to all ranks.
struct ToldHead {
  std::uint64_t number;    ///< from 1 on: ranks take them in this order
  std::uint64_t directly;  ///< 1: rank 0 has sent it to each rank; 0: it is to be passed on
};

bool is_told(MessageKind kind) {
  return kind == MessageKind::kAgreed || kind == MessageKind::kResponses ||
         kind == MessageKind::kJoined;
}

}  // namespace

std::optional<Controller::Clock::time_point> Controller::next_announcement() const {
  const auto batch = next_batch();
  const auto held = below_.held_since();
  if (!held) return batch;
  return batch ? std::min(*batch, *held + kHold) : *held + kHold;
}

// --- Up.

Status Controller::send_up(MessageKind kind, std::string_view payload) {
  ++counters_.messages;
  return control_plane_.send(tree_.parent(), kind, payload);
}

Status Controller::send_ready(const SlotsBySteps& slots, std::vector<Request> requests,
                              Clock::time_point now) {
  if (is_coordinator()) {
    KOLO_TRY(take_ready(Places{0}, slots, now));
    return take_requests(requests, now);
  }
  for (Request& request : requests) {
    if (is_by_its_ranks(request.signature)) ++announced_by_some_;
    if (request.signature.kind == OperationKind::kJoin) request.after = announced_by_some_;
  }
  const auto others = std::stable_partition(
      requests.begin(), requests.end(),
      [](const Request& request) { return is_by_its_ranks(request.signature); });
  for (std::span<const Request> rest(requests.begin(), others); !rest.empty();) {
    ++counters_.messages;
    KOLO_TRY(control_plane_.send(0, MessageKind::kRequests, encode_first(rest)));
  }
  if (tree_.is_between()) {
    KOLO_TRY(hold_ready(Places{0}, slots, now));
  } else if (!slots.empty()) {
    KOLO_TRY(send_up(MessageKind::kReady, encode(slots)));
  }
  for (std::span<const Request> rest(others, requests.end()); !rest.empty();) {
    const std::string list = encode_first(rest);
    KOLO_TRY(tree_.is_between() ? hold_requests(list) : send_up(MessageKind::kRequests, list));
  }
  if (!tree_.is_between()) return {};
  const auto passed_on = pass_on(now);
  return passed_on.ok() ? Status() : Status(passed_on.error());
}

Status Controller::hold_ready(Places ranks, const SlotsBySteps& slots, Clock::time_point now) {
  // A rank's bits do not overtake its earlier requests.
  if (!requests_.empty()) KOLO_TRY(send_held());
  for (const SlotsOfStep& some : slots)
    some.slots.for_each([&](std::uint32_t slot) { below_.add(ranks, slot, some.step, now); });
  return {};
}

Status Controller::hold_requests(std::string_view list) {
  // Nor do its requests overtake its bits.
  below_.pass_on(Clock::time_point::max());
  if (requests_.size() + list.size() > kLongestList) KOLO_TRY(send_held());
  requests_ += list;
  return {};
}

Result<bool> Controller::pass_on(Clock::time_point now) {
  // A joined rank announces nothing, so there is nothing to wait for.
  below_.pass_on(joined_ ? Clock::time_point::max() : now - kHold);
  if (!below_.has_passed_on() && requests_.empty()) return false;
  KOLO_TRY(send_held());
  return true;
}

Status Controller::send_held() {
  const SubtreeReady::PassedOn ready = below_.take();
  if (!ready.by_all.empty()) KOLO_TRY(send_up(MessageKind::kReady, encode(ready.by_all)));
  std::string by_rank;
  for (const auto& [place, slots] : ready.by_place) {
    by_rank += encode(SlotsByRank{{tree_.rank_at(place), slots}});
    if (by_rank.size() < kLongestList) continue;
    KOLO_TRY(send_up(MessageKind::kReadyOf, std::exchange(by_rank, {})));
  }
  if (!by_rank.empty()) KOLO_TRY(send_up(MessageKind::kReadyOf, by_rank));
  if (requests_.empty()) return {};
  return send_up(MessageKind::kRequests, std::exchange(requests_, {}));
}

// --- Down.

Status Controller::tell_all(MessageKind kind, std::string_view payload, bool directly) {
  std::string told(bytes_of(ToldHead{++told_, directly}));
  told += payload;
  if (!directly) return pass_down(kind, told);
  counters_.messages += static_cast<std::uint64_t>(communicator_.size() - 1);
  return control_plane_.send_to_others(kind, told);
}

Status Controller::pass_down(MessageKind kind, std::string_view told) {
  counters_.messages += tree_.children().size();
  return control_plane_.send(tree_.children(), kind, told);
}

Status Controller::on_told(int peer, const Message& message) {
  const auto bytes = message.payload;
  const auto head = bytes.size() < sizeof(ToldHead)
                        ? std::nullopt
                        : value_of<ToldHead>(bytes.first(sizeof(ToldHead)));
  if (!head || head->number <= told_) return malformed(peer, message.kind);
  // First, so that a rank that leaves has passed on whatever it has taken.
  if (head->directly == 0) KOLO_TRY(pass_down(message.kind, message.text()));
  const auto told = bytes.subspan(sizeof(ToldHead));
  if (head->number > told_ + 1) {
    told_early_[head->number] = {message.kind,
                                 std::string(message.text().substr(sizeof(ToldHead)))};
    return {};
  }
  KOLO_TRY(take_told(peer, message.kind, told));
  while (!told_early_.empty() && told_early_.begin()->first == told_ + 1) {
    const auto early = told_early_.extract(told_early_.begin());
    const auto& [kind, text] = early.mapped();
    KOLO_TRY(take_told(peer, kind, std::as_bytes(std::span(text))));
  }
  return {};
}

Status Controller::take_told(int peer, MessageKind kind, std::span<const std::byte> told) {
  ++told_;
  if (kind == MessageKind::kResponses) {
    KOLO_ASSIGN(auto responses, decode_responses(told));
    return take_responses(std::move(responses));
  }
  if (kind == MessageKind::kJoined) {
    joined_ = value_of<JoinedRank>(told);
    return joined_ ? Status() : malformed(peer, kind);
  }
  SlotSet slots;
  if (!SlotSet::decode(told, cache_.size(), slots)) return malformed(peer, kind);
  take_slots(slots);
  return {};
}

// --- What arrives.

Status Controller::on_message(int peer, const Message& message) {
  const auto child = tree_.below(peer);
  // Rank 0 knows of every slot. A rank between may hear of one from below first.
  const auto slots =
      is_coordinator() ? cache_.size() : static_cast<std::uint32_t>(config_.cache_capacity);
  if (message.kind == MessageKind::kReady && child) {
    SlotsBySteps ready;
    if (decode(message.payload, slots, ready)) return on_ready(*child, ready);
  } else if (message.kind == MessageKind::kReadyOf && child) {
    SlotsByRank ready;
    if (!decode(message.payload, slots, ready)) return malformed(peer, message.kind);
    for (const auto& [rank, its] : ready) {
      const auto place = tree_.place_of(rank);
      if (!place) return malformed(peer, message.kind);
      KOLO_TRY(on_ready({*place}, its));
    }
    return {};
  } else if (message.kind == MessageKind::kRequests && is_coordinator()) {
    KOLO_ASSIGN(const auto requests, decode_requests(message.payload));
    return take_requests(requests, Clock::now());
  } else if (message.kind == MessageKind::kRequests && child) {
    return hold_requests(message.text());
  } else if (is_told(message.kind) && !is_coordinator() && (peer == 0 || peer == tree_.parent())) {
    return on_told(peer, message);
  }
  return malformed(peer, message.kind);
}

Status Controller::on_ready(Places ranks, const SlotsBySteps& slots) {
  const auto now = Clock::now();
  return is_coordinator() ? take_ready(ranks, slots, now) : hold_ready(ranks, slots, now);
}

Error Controller::malformed(int peer, MessageKind kind) const {
  return KOLO_ERROR(kInternal,
                    "rank {}: unexpected or malformed negotiation message {} from rank {}",
                    communicator_.rank(), static_cast<int>(kind), peer);
}

}  // namespace kolo
