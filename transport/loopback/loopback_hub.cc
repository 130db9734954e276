// See loopback_hub.h.
#include "transport/loopback/loopback_hub.h"

#include "runtime/base/check.h"

#include <utility>

namespace kolo {

LoopbackHub::LoopbackHub(int size) {
  KOLO_CHECK(size > 0);
  for (int rank = 0; rank < size; ++rank) inboxes_.push_back(std::make_unique<Inbox>());
}

void LoopbackHub::kill(int rank) {
  if (inbox(rank).killed.exchange(true)) return;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank) continue;
    Inbox& to = inbox(peer);
    const std::scoped_lock lock(to.mutex);
    if (to.left) continue;
    to.batch.packets.push_back({.kind = LoopbackPacket::Kind::kPeerFailed, .from = rank});
    to.filled.store(true, std::memory_order_release);
    if (std::exchange(to.asleep, false)) to.waker.wake();
  }
}

LoopbackHub::Delivery LoopbackHub::deliver(int to, LoopbackPacket packet,
                                           std::span<const std::byte> bytes) {
  if (inbox(packet.from).killed.load(std::memory_order_acquire)) return Delivery::kSenderKilled;
  Inbox& receiver = inbox(to);
  if (receiver.killed.load(std::memory_order_acquire)) return Delivery::kReceiverKilled;
  bool ring = false;
  {
    const std::scoped_lock lock(receiver.mutex);
    if (receiver.left) return Delivery::kReceiverLeft;
    LoopbackBatch& batch = receiver.batch;
    packet.offset = batch.bytes.size();
    batch.bytes.insert(batch.bytes.end(), bytes.begin(), bytes.end());
    batch.packets.push_back(std::move(packet));
    receiver.filled.store(true, std::memory_order_release);
    ring = std::exchange(receiver.asleep, false);
  }
  if (ring) receiver.waker.wake();
  return Delivery::kDelivered;
}

bool LoopbackHub::collect(int rank, LoopbackBatch& batch) {
  Inbox& own = inbox(rank);
  if (!own.filled.load(std::memory_order_acquire)) return false;
  const std::scoped_lock lock(own.mutex);
  std::swap(own.batch, batch);
  own.filled.store(false, std::memory_order_release);
  own.asleep = false;
  return !batch.packets.empty();
}

bool LoopbackHub::arm(int rank) {
  Inbox& own = inbox(rank);
  const std::scoped_lock lock(own.mutex);
  if (!own.batch.packets.empty()) return false;
  own.waker.clear();
  own.asleep = true;
  return true;
}

LoopbackBatch LoopbackHub::leave(int rank) {
  Inbox& own = inbox(rank);
  const std::scoped_lock lock(own.mutex);
  own.left = true;
  return std::exchange(own.batch, LoopbackBatch());
}

std::uint64_t LoopbackHub::offer_memory(const std::shared_ptr<void>& memory) {
  const std::lock_guard lock(memory_mutex_);
  memory_.push_back(memory);
  return memory_.size() - 1;
}

std::shared_ptr<void> LoopbackHub::memory_of(std::uint64_t number) {
  const std::lock_guard lock(memory_mutex_);
  return number < memory_.size() ? memory_[number].lock() : nullptr;
}

}  // namespace kolo
