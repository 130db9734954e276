// Matches sends and receives by offers and answers. Progress token holder only.
#include "runtime/negotiation/point_to_point.h"

#include "runtime/base/check.h"
#include "runtime/base/plain_bytes.h"

#include <algorithm>
#include <string_view>

namespace kolo {

/// Nothing if the bytes are malformed.
template <class Fields>
std::optional<PointToPoint::Told<Fields>> PointToPoint::read(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Fields)) return std::nullopt;
  const auto fields = value_of<Fields>(bytes.first(sizeof(Fields)));
  if (static_cast<int>(fields->type) >= kDataTypeCount) return std::nullopt;
  const auto text = bytes.subspan(sizeof(Fields));
  return Told<Fields>{*fields, {reinterpret_cast<const char*>(text.data()), text.size()}};
}

template <class Fields>
Status PointToPoint::tell(int peer, MessageKind kind, const Fields& fields,
                          const std::string& complaint) {
  if (complaint.empty()) return control_plane_.send(peer, kind, bytes_of(fields));
  return control_plane_.send(peer, kind, std::string(bytes_of(fields)) + complaint);
}

Status PointToPoint::add(EntryPtr entry) {
  const int peer = index_of(*entry);
  const bool is_refused = !entry->complaint.empty();
  if (is_alone(*entry)) {
    settle_lost(std::move(entry));
    return {};
  }
  if (entry->signature.kind == OperationKind::kSend) {
    const Offer offer{next_sequence_[peer]++, entry->signature.elements(), entry->tag,
                      entry->signature.type, entry->signature.on_device};
    const std::string complaint = entry->complaint;
    if (!is_refused) {
      ++pending_;
      sends_.emplace(PeerAndSequence{peer, offer.sequence}, std::move(entry));
    }
    return tell(peer, MessageKind::kOffer, offer, complaint);
  }
  ++pending_;
  const auto offers = offers_for(*entry);
  if (offers == offers_.end()) {
    receives_[{peer, entry->tag}].push_back(std::move(entry));
    return {};
  }
  const int sender = offers->first.first;
  const Told<Offer> offer = std::move(offers->second.front());
  offers->second.pop_front();
  if (offers->second.empty()) offers_.erase(offers);
  return meet(sender, offer, std::move(entry));
}

std::map<PointToPoint::PeerAndTag, std::deque<PointToPoint::Told<PointToPoint::Offer>>>::iterator
PointToPoint::offers_for(const Entry& receive) {
  const int peer = index_of(receive);
  if (peer != kAnyRank) return offers_.find({peer, receive.tag});
  auto first = offers_.end();
  for (auto it = offers_.begin(); it != offers_.end(); ++it) {
    if (it->first.second != receive.tag) continue;
    if (first == offers_.end() || it->second.front().arrival < first->second.front().arrival)
      first = it;
  }
  return first;
}

std::map<PointToPoint::PeerAndTag, std::deque<EntryPtr>>::iterator PointToPoint::receives_for(
    const PeerAndTag& offer) {
  const auto named = receives_.find(offer);
  const auto any = receives_.find({kAnyRank, offer.second});
  if (named == receives_.end() || any == receives_.end())
    return named == receives_.end() ? any : named;
  const bool any_is_older = any->second.front()->submitted_at < named->second.front()->submitted_at;
  return any_is_older ? any : named;
}

bool PointToPoint::is_alone(const Entry& entry) const {
  const int peer = index_of(entry);
  if (peer != kAnyRank) return gone_.contains(peer);
  const auto others = static_cast<std::size_t>(communicator_.size()) - 1;
  const bool sends_to_itself = std::any_of(sends_.begin(), sends_.end(), [&](const auto& send) {
    return send.first.first == communicator_.rank();
  });
  return others > 0 && gone_.size() == others && !sends_to_itself;
}

Status PointToPoint::on_message(int peer, const Message& message) {
  if (message.kind == MessageKind::kAnswer) {
    if (const auto answer = read<Answer>(message.payload)) return take_answer(peer, *answer);
  }
  const auto offer = message.kind == MessageKind::kOffer ? read<Offer>(message.payload)
                                                         : std::optional<Told<Offer>>();
  if (!offer) {
    return KOLO_ERROR(kInternal, "rank {}: malformed offer or answer from rank {}",
                      communicator_.rank(), peer);
  }
  const PeerAndTag key{peer, offer->fields.tag};
  const auto waiting = receives_for(key);
  if (waiting == receives_.end()) {
    offers_[key].push_back({offer->fields, offer->complaint, arrivals_++});
    return {};
  }
  EntryPtr receive = std::move(waiting->second.front());
  waiting->second.pop_front();
  if (waiting->second.empty()) receives_.erase(waiting);
  return meet(peer, *offer, std::move(receive));
}

Status PointToPoint::meet(int peer, const Told<Offer>& told, EntryPtr receive) {
  --pending_;
  const Offer& offer = told.fields;
  const Signature& signature = receive->signature;
  receive->signature.root = communicator_.ranks()[static_cast<std::size_t>(peer)];
  const std::string complaint = receive->complaint;
  if (!told.complaint.empty()) {  // the sender waits for no answer
    if (!complaint.empty()) return {};
    Error error = refused(peer, *receive, told.complaint);
    settled_.push_back({std::move(receive), 0, std::move(error)});
    return {};
  }
  // Memory must be of the same kind, because messages of device memory are cut differently.
  const bool accepted = complaint.empty() && offer.elements == signature.elements() &&
                        offer.type == signature.type &&
                        (offer.on_device != 0) == signature.on_device;
  const Answer answer{offer.sequence, signature.elements(), signature.type, signature.on_device,
                      accepted};
  if (!complaint.empty()) return tell(peer, MessageKind::kAnswer, answer, complaint);
  Settled settled{std::move(receive), offer.sequence};
  if (!answer.accepted) {
    settled.error = mismatch(peer, communicator_.rank(), offer.tag, offer, answer);
  } else if (peer == communicator_.rank()) {
    // A send to this rank itself: one copy completes both.
    auto node = sends_.extract({peer, offer.sequence});
    KOLO_CHECK(!node.empty());
    --pending_;
    settled.own_send = std::move(node.mapped());
    settled_.push_back(std::move(settled));
    return {};
  }
  settled_.push_back(std::move(settled));
  return control_plane_.send(peer, MessageKind::kAnswer, bytes_of(answer));
}

Status PointToPoint::take_answer(int peer, const Told<Answer>& told) {
  const Answer& answer = told.fields;
  auto node = sends_.extract({peer, answer.sequence});
  if (node.empty()) {
    // The send has expired here. A receiver that accepted it would wait for its bytes.
    if (!answer.accepted) return {};
    const std::vector<int>& ranks = communicator_.ranks();
    return KOLO_ERROR(
        kTimeout,
        "rank {}: rank {} has called recv() for {} elements of {} from this rank after {} s "
        "(KOLO_OPERATION_TIMEOUT) had ended their send, and waits for what never comes; a longer "
        "timeout lets it come later",
        ranks[static_cast<std::size_t>(communicator_.rank())],
        ranks[static_cast<std::size_t>(peer)], answer.elements, to_string(answer.type),
        config_.operation_timeout_s);
  }
  --pending_;
  Settled settled{std::move(node.mapped()), answer.sequence};
  if (!told.complaint.empty()) {
    settled.error = refused(peer, *settled.entry, told.complaint);
  } else if (!answer.accepted) {
    const Signature& signature = settled.entry->signature;
    const Offer offer{answer.sequence, signature.elements(), settled.entry->tag, signature.type,
                      signature.on_device};
    settled.error = mismatch(communicator_.rank(), peer, settled.entry->tag, offer, answer);
  }
  settled_.push_back(std::move(settled));
  return {};
}

Error PointToPoint::refused(int refuser, const Entry& entry, const std::string& complaint) const {
  return KOLO_ERROR(kInvalidArgument, "{} {}{}: rank {}, its other side, has refused it: {}",
                    to_string(entry.signature.kind), entry.name, communicator_.suffix(),
                    communicator_.ranks()[static_cast<std::size_t>(refuser)], complaint);
}

Error PointToPoint::mismatch(int from, int to, std::uint32_t tag, const Offer& sent,
                             const Answer& received) const {
  const auto name = [&](int rank) { return communicator_.ranks()[static_cast<std::size_t>(rank)]; };
  const bool apart = sent.on_device != received.on_device;
  const auto memory = [&](std::uint8_t on_device) {
    return !apart ? "" : on_device != 0 ? " in a CUDA device's memory" : " in the host's memory";
  };
  return KOLO_ERROR(kMismatch,
                    "message with tag {}{}: rank {} sends {} elements of {}{}, but rank {} "
                    "receives {} of {}{}; both must give the same count and type{}",
                    tag, communicator_.suffix(), name(from), sent.elements, to_string(sent.type),
                    memory(sent.on_device), name(to), received.elements, to_string(received.type),
                    memory(received.on_device), apart ? ", and a stream or none" : "");
}

void PointToPoint::settle_lost(EntryPtr entry) {
  if (!entry->complaint.empty()) return;
  const bool sends = entry->signature.kind == OperationKind::kSend;
  const bool from_any = entry->signature.root == kAnyRank;
  Error error =
      KOLO_ERROR(kPeerLost, "rank {}: {} {}: {} shut down and will never call {}()",
                 communicator_.ranks()[static_cast<std::size_t>(communicator_.rank())],
                 to_string(entry->signature.kind), entry->name,
                 from_any ? "all others have" : fmt::format("rank {} has", entry->signature.root),
                 sends ? "recv" : "send");
  settled_.push_back({std::move(entry), 0, std::move(error)});
}

void PointToPoint::peer_left(int peer) {
  gone_.insert(peer);
  for (auto it = sends_.begin(); it != sends_.end();) {
    const bool lost = it->first.first == peer;
    if (lost) settle_lost(std::move(it->second));
    if (lost) --pending_;
    it = lost ? sends_.erase(it) : std::next(it);
  }
  for (auto it = receives_.begin(); it != receives_.end();) {
    const bool lost = is_alone(*it->second.front());
    if (lost) pending_ -= it->second.size();
    if (lost)
      for (EntryPtr& entry : it->second) settle_lost(std::move(entry));
    it = lost ? receives_.erase(it) : std::next(it);
  }
  std::erase_if(offers_, [&](const auto& offers) { return offers.first.first == peer; });
}

std::uint64_t PointToPoint::count_unstarted(int peer) const {
  const auto sends = std::count_if(sends_.begin(), sends_.end(),
                                   [&](const auto& send) { return send.first.first == peer; });
  const auto settled = std::count_if(settled_.begin(), settled_.end(), [&](const Settled& one) {
    return !one.error && index_of(*one.entry) == peer;
  });
  return static_cast<std::uint64_t>(sends + settled);
}

std::vector<PointToPoint::Settled> PointToPoint::take_settled() {
  return std::exchange(settled_, {});
}

void PointToPoint::expire(Clock::time_point now) {
  const std::chrono::seconds timeout(config_.operation_timeout_s);
  const auto settle = [&](EntryPtr& entry, std::string_view other) {
    --pending_;
    if (!entry->complaint.empty()) return;
    const bool from_any = entry->signature.root == kAnyRank;
    const Error error =
        KOLO_ERROR(kTimeout, "{} {}: {} called {}() within {} s (KOLO_OPERATION_TIMEOUT)",
                   to_string(entry->signature.kind), entry->name,
                   from_any ? "no rank has" : fmt::format("rank {} has not", entry->signature.root),
                   other, config_.operation_timeout_s);
    settled_.push_back({std::move(entry), 0, error});
  };
  for (auto it = sends_.begin(); it != sends_.end();) {
    const bool late = now - it->second->submitted_at >= timeout;
    if (late) settle(it->second, "recv");
    it = late ? sends_.erase(it) : std::next(it);
  }
  for (auto it = receives_.begin(); it != receives_.end();) {
    auto& entries = it->second;
    while (!entries.empty() && now - entries.front()->submitted_at >= timeout) {
      settle(entries.front(), "send");
      entries.pop_front();
    }
    it = entries.empty() ? receives_.erase(it) : std::next(it);
  }
}

std::vector<EntryPtr> PointToPoint::take_pending() {
  std::vector<EntryPtr> entries;
  for (auto& [key, entry] : sends_) entries.push_back(std::move(entry));
  for (auto& [key, waiting] : receives_) {
    for (EntryPtr& entry : waiting)
      if (entry->complaint.empty()) entries.push_back(std::move(entry));
  }
  for (Settled& settled : settled_) {
    entries.push_back(std::move(settled.entry));
    if (settled.own_send) entries.push_back(std::move(settled.own_send));
  }
  sends_.clear();
  receives_.clear();
  offers_.clear();
  settled_.clear();
  pending_ = 0;
  return entries;
}

}  // namespace kolo
