#include "runtime/negotiation/control_relay.h"

#include "runtime/base/plain_bytes.h"

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
         kind == MessageKind::kJoined || kind == MessageKind::kPlan;
}

}  // namespace

ControlRelay::ControlRelay(const Communicator& communicator, ControlPlane& control_plane,
                           int degree, Receiver& receiver)
    : communicator_(communicator),
      control_plane_(control_plane),
      receiver_(receiver),
      tree_(communicator, degree),
      below_(tree_.size()) {}

std::optional<ControlRelay::Clock::time_point> ControlRelay::due() const {
  const auto since = below_.held_since();
  return since ? std::optional(*since + kHold) : std::nullopt;
}

// --- Up.

Status ControlRelay::send_up(MessageKind kind, std::string_view payload) {
  ++messages_;
  return control_plane_.send(tree_.parent(), kind, payload);
}

Status ControlRelay::send_ready(const SlotsBySteps& slots, std::vector<Request> requests,
                                Clock::time_point now) {
  if (is_coordinator()) {
    KOLO_TRY(receiver_.take_ready(Places{0}, slots, now));
    return on_requests(requests, now);
  }
  for (Request& request : requests) {
    if (is_by_its_ranks(request.signature)) ++announced_by_some_;
    if (request.signature.kind == OperationKind::kJoin) request.after = announced_by_some_;
  }
  const auto others = std::stable_partition(
      requests.begin(), requests.end(),
      [](const Request& request) { return is_by_its_ranks(request.signature); });
  for (std::span<const Request> rest(requests.begin(), others); !rest.empty();) {
    ++messages_;
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

Status ControlRelay::hold_ready(Places ranks, const SlotsBySteps& slots, Clock::time_point now) {
  // A rank's bits do not overtake its earlier requests.
  if (!requests_.empty()) KOLO_TRY(send_held());
  for (const SlotsOfStep& some : slots)
    some.slots.for_each([&](std::uint32_t slot) { below_.add(ranks, slot, some.step, now); });
  return {};
}

Status ControlRelay::hold_requests(std::string_view list) {
  // Nor do its requests overtake its bits.
  below_.pass_on(Clock::time_point::max());
  if (requests_.size() + list.size() > kLongestList) KOLO_TRY(send_held());
  requests_ += list;
  return {};
}

Result<bool> ControlRelay::pass_on(Clock::time_point now) {
  below_.pass_on(holds_ ? now - kHold : Clock::time_point::max());
  if (!below_.has_passed_on() && requests_.empty()) return false;
  KOLO_TRY(send_held());
  return true;
}

Status ControlRelay::send_held() {
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

Status ControlRelay::tell_all(MessageKind kind, std::string_view payload, bool directly) {
  std::string told(bytes_of(ToldHead{++told_, directly}));
  told += payload;
  if (!directly) return pass_down(kind, told);
  messages_ += static_cast<std::uint64_t>(communicator_.size() - 1);
  return control_plane_.send_to_others(kind, told);
}

Status ControlRelay::pass_down(MessageKind kind, std::string_view told) {
  messages_ += tree_.children().size();
  return control_plane_.send(tree_.children(), kind, told);
}

Status ControlRelay::on_told(int peer, const Message& message) {
  const auto bytes = message.payload;
  const auto head = bytes.size() < sizeof(ToldHead)
                        ? std::nullopt
                        : value_of<ToldHead>(bytes.first(sizeof(ToldHead)));
  if (!head || head->number <= told_) return malformed(peer, message.kind);
  // First, so that a rank that leaves has passed on whatever it has taken.
  if (head->directly == 0) KOLO_TRY(pass_down(message.kind, message.text()));
  const auto told = bytes.subspan(sizeof(ToldHead));
  if (!is_next(head->number)) {
    told_early_[head->number] = {message.kind,
                                 std::string(message.text().substr(sizeof(ToldHead)))};
    return {};
  }
  KOLO_TRY(take_told(message.kind, told));
  return take_early();
}

Status ControlRelay::take_early() {
  while (!told_early_.empty() && is_next(told_early_.begin()->first)) {
    const auto early = told_early_.extract(told_early_.begin());
    const auto& [kind, text] = early.mapped();
    KOLO_TRY(take_told(kind, std::as_bytes(std::span(text))));
  }
  return {};
}

Status ControlRelay::take_told(MessageKind kind, std::span<const std::byte> told) {
  ++told_;
  KOLO_ASSIGN(const bool is_taken, receiver_.take_told(kind, told));
  return is_taken ? Status() : malformed(0, kind);
}

// --- What arrives.

Status ControlRelay::on_message(int peer, const Message& message, std::uint32_t slots) {
  const auto child = tree_.below(peer);
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
    return on_requests(requests, Clock::now());
  } else if (message.kind == MessageKind::kRequests && child) {
    return hold_requests(message.text());
  } else if (is_told(message.kind) && !is_coordinator() && (peer == 0 || peer == tree_.parent())) {
    return on_told(peer, message);
  }
  return malformed(peer, message.kind);
}

Status ControlRelay::on_ready(Places ranks, const SlotsBySteps& slots) {
  const auto now = Clock::now();
  return is_coordinator() ? receiver_.take_ready(ranks, slots, now) : hold_ready(ranks, slots, now);
}

Status ControlRelay::on_requests(const std::vector<Request>& requests, Clock::time_point now) {
  for (const Request& request : requests) {
    if (request.rank >= communicator_.size()) {
      return KOLO_ERROR(kInternal, "rank 0: a request for '{}' of rank {}{}, of {}", request.name,
                        request.rank, communicator_.suffix(), communicator_.size());
    }
    const bool is_by_some = is_by_its_ranks(request.signature);
    if (is_by_some) ++announced_by_some_of_[request.rank];
    if (request.after > 0 && request.after > announced_by_some_of_[request.rank]) {
      early_joins_.push_back(request);
      continue;
    }
    KOLO_TRY(receiver_.take_request(request, now));
    if (!is_by_some) continue;
    const auto join =
        std::find_if(early_joins_.begin(), early_joins_.end(), [&](const Request& early) {
          return early.rank == request.rank && early.after == announced_by_some_of_[request.rank];
        });
    if (join == early_joins_.end()) continue;
    const Request due = std::move(*join);
    early_joins_.erase(join);
    KOLO_TRY(receiver_.take_request(due, now));
  }
  return {};
}

Error ControlRelay::malformed(int peer, MessageKind kind) const {
  return KOLO_ERROR(kInternal,
                    "rank {}: unexpected or malformed negotiation message {} from rank {}",
                    communicator_.rank(), static_cast<int>(kind), peer);
}

}  // namespace kolo
