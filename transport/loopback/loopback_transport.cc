// See loopback_transport.h.
#include "transport/loopback/loopback_transport.h"

#include "runtime/base/check.h"
#include "transport/wait.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kolo {

LoopbackTransport::LoopbackTransport(LoopbackHub& hub, int rank) : hub_(hub), rank_(rank) {
  KOLO_CHECK(rank >= 0 && rank < hub.size());
}

LoopbackTransport::~LoopbackTransport() {
  withdraw_offers();
  const LoopbackBatch left = hub_.leave(rank_);
  const auto refuse = [this](int peer, const std::shared_ptr<LoopbackOffer>& offer) {
    if (offer == nullptr || peer == rank_) return;
    hub_.deliver(peer, {.kind = LoopbackPacket::Kind::kRefused, .from = rank_, .offer = offer}, {});
  };
  for (const LoopbackPacket& packet : left.packets) {
    if (packet.kind == LoopbackPacket::Kind::kOffer) refuse(packet.from, packet.offer);
  }
  for (const auto& [key, arrival] : matcher_.take_arrivals()) refuse(key.peer, arrival.offer);
}

std::string LoopbackTransport::description() const {
  return fmt::format("loopback ({} ranks as threads of one process)", hub_.size());
}

std::string LoopbackTransport::address() const { return fmt::format("loopback:{}", rank_); }

Status LoopbackTransport::connect(int rank, std::vector<Peer> peers, TransportListener& listener,
                                  const Abort& abort, Deadline deadline) {
  if (abort.raised()) return abort.error();
  if (deadline.expired()) {
    return KOLO_ERROR(kTimeout, "rank {}: the deadline passed before connecting", rank);
  }
  if (rank != rank_ || std::cmp_not_equal(peers.size(), hub_.size())) {
    return KOLO_ERROR(kInvalidArgument,
                      "rank {} of {} cannot connect through place {} of a loopback hub of {}", rank,
                      peers.size(), rank_, hub_.size());
  }
  for (int peer = 0; peer < hub_.size(); ++peer) {
    const std::string expected = fmt::format("loopback:{}", peer);
    const std::string& address = peers[static_cast<std::size_t>(peer)].address;
    if (address != expected) {
      return KOLO_ERROR(kInvalidArgument, "rank {}: rank {} gave the address '{}' instead of '{}'",
                        rank, peer, address, expected);
    }
  }
  listener_ = &listener;
  reported_.assign(peers.size(), false);
  activity_.assign(peers.size(), {});
  active_peers_.clear();
  return {};
}

LinkActivity& LoopbackTransport::activate(int peer) {
  LinkActivity& activity = activity_[static_cast<std::size_t>(peer)];
  if (!activity.opened && activity.arrivals == 0) active_peers_.push_back(peer);
  return activity;
}

Status LoopbackTransport::check_peer(int peer) const {
  if (failure_) return *failure_;
  if (listener_ == nullptr) {
    return KOLO_ERROR(kInternal, "rank {} uses its transport before connect()", rank_);
  }
  if (peer < 0 || peer >= hub_.size()) {
    return KOLO_ERROR(kInvalidArgument, "rank {}: there is no rank {} among {} ranks", rank_, peer,
                      hub_.size());
  }
  return {};
}

Status LoopbackTransport::delivered(int peer, LoopbackHub::Delivery delivery) const {
  switch (delivery) {
    case LoopbackHub::Delivery::kDelivered:
      return {};
    case LoopbackHub::Delivery::kReceiverLeft:
      return KOLO_ERROR(kPeerLost, "rank {}: rank {} has left", rank_, peer);
    case LoopbackHub::Delivery::kReceiverKilled:
      return KOLO_ERROR(kPeerLost, "rank {}: rank {} was killed", rank_, peer);
    case LoopbackHub::Delivery::kSenderKilled:
      return KOLO_ERROR(kPeerLost, "rank {} was killed itself", rank_);
  }
  return KOLO_ERROR(kInternal, "unknown delivery");
}

Status LoopbackTransport::post_message(int peer, std::span<const std::byte> message) {
  KOLO_TRY(check_peer(peer));
  if (message.size() > kLargestMessage) {
    return KOLO_ERROR(kInvalidArgument, "rank {}: a control message of {} bytes exceeds {}", rank_,
                      message.size(), kLargestMessage);
  }
  activate(peer).opened = true;
  const auto delivery = hub_.deliver(
      peer, {.kind = LoopbackPacket::Kind::kControl, .from = rank_, .length = message.size()},
      message);
  if (delivery == LoopbackHub::Delivery::kSenderKilled) return delivered(peer, delivery);
  return {};
}

void LoopbackTransport::send(int peer, Tag tag, std::span<const std::byte> data,
                             Transfer& transfer) {
  transfer.start();
  if (Status status = check_peer(peer); !status.ok()) {
    transfer.finish(std::move(status));
    return;
  }
  activate(peer).opened = true;
  if (data.size() <= kEagerLimit) {
    transfer.finish(delivered(peer, hub_.deliver(peer,
                                                 {.kind = LoopbackPacket::Kind::kEager,
                                                  .from = rank_,
                                                  .tag = tag,
                                                  .checksum = transfer.checksum(),
                                                  .length = data.size()},
                                                 data)));
    return;
  }
  auto offer = std::make_shared<LoopbackOffer>();
  offer->data = data;
  if (free_slots_.empty()) {
    free_slots_.push_back(pending_.size());
    pending_.emplace_back();
  }
  offer->slot = free_slots_.back();
  free_slots_.pop_back();
  pending_[offer->slot] = {.offer = offer, .transfer = &transfer, .peer = peer};
  ++sends_pending_;
  Status status = delivered(peer, hub_.deliver(peer,
                                               {.kind = LoopbackPacket::Kind::kOffer,
                                                .from = rank_,
                                                .tag = tag,
                                                .checksum = transfer.checksum(),
                                                .length = data.size(),
                                                .offer = offer},
                                               {}));
  if (status.ok()) return;
  take_pending(offer->slot);
  transfer.finish(std::move(status));
}

void LoopbackTransport::receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) {
  transfer.start();
  if (Status status = check_peer(peer); !status.ok()) {
    transfer.finish(std::move(status));
    return;
  }
  const PostedReceive receive{.data = data, .transfer = &transfer, .call = tag.call};
  const std::optional<Arrival> arrival = matcher_.post({.peer = peer, .tag = tag}, receive);
  if (!arrival) return;
  if (arrival->offer != nullptr) {
    copy_offer(receive, {peer, arrival->offer->data.size(), arrival->call, arrival->checksum},
               arrival->offer);
  } else {
    copy_eager(receive, {peer, arrival->bytes.size(), arrival->call, arrival->checksum},
               arrival->bytes);
  }
}

void LoopbackTransport::copy_eager(const PostedReceive& receive, const TransferEnd& sent,
                                   std::span<const std::byte> bytes) {
  const TransferEnd own{rank_, receive.data.size(), receive.call};
  receive.transfer->set_checksum(sent.checksum);
  if (!fit(own, sent)) return receive.transfer->finish(receive.transfer->mismatch(own, sent));
  if (!bytes.empty()) std::memcpy(receive.data.data(), bytes.data(), bytes.size());
  receive.transfer->finish(Status());
}

void LoopbackTransport::copy_offer(const PostedReceive& receive, const TransferEnd& sent,
                                   const std::shared_ptr<LoopbackOffer>& offer) {
  const TransferEnd own{rank_, receive.data.size(), receive.call};
  receive.transfer->set_checksum(sent.checksum);
  Status status;
  {
    const std::scoped_lock lock(offer->mutex);
    if (offer->withdrawn) {
      status = KOLO_ERROR(kPeerLost, "rank {}: rank {} failed or left before its message was read",
                          rank_, sent.rank);
    } else if (!fit(own, sent)) {
      status = receive.transfer->mismatch(own, sent);
    } else {
      std::memcpy(receive.data.data(), offer->data.data(), offer->data.size());
    }
  }
  // A sender that has left or was killed needs no answer.
  hub_.deliver(sent.rank, {.kind = LoopbackPacket::Kind::kTaken, .from = rank_, .offer = offer},
               {});
  receive.transfer->finish(std::move(status));
}

bool LoopbackTransport::progress() {
  if (listener_ == nullptr || progressing_ || !hub_.collect(rank_, batch_)) return false;
  progressing_ = true;
  for (const LoopbackPacket& packet : batch_.packets) {
    handle(packet, std::span(batch_.bytes)
                       .subspan(packet.offset,
                                packet.kind <= LoopbackPacket::Kind::kEager ? packet.length : 0));
  }
  batch_.clear();
  progressing_ = false;
  return true;
}

void LoopbackTransport::handle(const LoopbackPacket& packet, std::span<const std::byte> bytes) {
  if (failure_) return;
  const MessageKey key{.peer = packet.from, .tag = packet.tag};
  const TransferEnd sent{packet.from, packet.length, packet.tag.call, packet.checksum};
  ++activate(packet.from).arrivals;
  switch (packet.kind) {
    case LoopbackPacket::Kind::kControl:
      listener_->on_message(packet.from, bytes);
      return;
    case LoopbackPacket::Kind::kEager:
      if (const auto receive = matcher_.match(key)) {
        copy_eager(*receive, sent, bytes);
      } else {
        matcher_.keep(key, {.bytes = {bytes.begin(), bytes.end()},
                            .offer = nullptr,
                            .call = sent.call,
                            .checksum = sent.checksum});
      }
      return;
    case LoopbackPacket::Kind::kOffer:
      if (const auto receive = matcher_.match(key)) {
        copy_offer(*receive, sent, packet.offer);
      } else {
        matcher_.keep(
            key,
            {.bytes = {}, .offer = packet.offer, .call = sent.call, .checksum = sent.checksum});
      }
      return;
    case LoopbackPacket::Kind::kTaken:
      take_pending(packet.offer->slot).transfer->finish(Status());
      return;
    case LoopbackPacket::Kind::kRefused:
      take_pending(packet.offer->slot)
          .transfer->finish(delivered(packet.from, LoopbackHub::Delivery::kReceiverLeft));
      return;
    case LoopbackPacket::Kind::kPeerFailed: {
      const auto peer = static_cast<std::size_t>(packet.from);
      if (reported_[peer]) return;
      reported_[peer] = true;
      listener_->on_peer_failed(
          packet.from, delivered(packet.from, LoopbackHub::Delivery::kReceiverKilled).error());
      return;
    }
  }
}

LoopbackTransport::PendingSend LoopbackTransport::take_pending(std::size_t slot) {
  free_slots_.push_back(slot);
  --sends_pending_;
  return std::exchange(pending_[slot], PendingSend());
}

int LoopbackTransport::event_fd() const { return hub_.inbox(rank_).waker.fd(); }

Status LoopbackTransport::flush(const Abort& abort, Deadline deadline) {
  if (failure_) return *failure_;
  return progress_until(
      *this, [this] { return sends_pending_ == 0; }, abort, deadline,
      fmt::format("rank {} flushed its sends", rank_));
}

void LoopbackTransport::withdraw_offers() {
  for (const PendingSend& send : pending_) {
    if (send.offer == nullptr) continue;
    const std::scoped_lock lock(send.offer->mutex);  // waits for a running copy
    send.offer->withdrawn = true;
  }
}

void LoopbackTransport::fail_all(const Error& error) {
  if (failure_) return;
  failure_ = error;
  withdraw_offers();
  sends_pending_ = 0;
  for (const PendingSend& send : std::exchange(pending_, {})) {
    if (send.offer != nullptr) send.transfer->finish(error);
  }
  for (const auto& [key, receive] : matcher_.take_receives()) receive.transfer->finish(error);
}

}  // namespace kolo
