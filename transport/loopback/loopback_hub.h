// LoopbackHub: the "network" between ranks that are threads of one process. Each rank has an inbox,
// whose eventfd is signalled only when its reader is about to sleep. A test world creates the hub
// before its ranks; the hub outlives their transports. Any thread may call any function.
#pragma once

#include "runtime/base/waker.h"
#include "transport/tag.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace kolo {

/// A large message that stays in its sender's memory until the receiver copies it (rendezvous). The
/// receiver copies while it holds `mutex`, and the sender withdraws under `mutex`. So a sender that
/// fails its transfers waits for a running copy, and nobody reads its memory afterwards.
struct LoopbackOffer {
  std::mutex mutex;
  bool withdrawn = false;           // guarded by mutex
  std::span<const std::byte> data;  // readable while not withdrawn, under mutex
  std::size_t slot = 0;             // the sender's own number for the offer; constant
};

struct LoopbackPacket {
  enum class Kind : std::uint8_t {
    kControl,     ///< a control message; bytes follow
    kEager,       ///< a tagged message; bytes follow
    kOffer,       ///< a tagged message, to be copied from `offer`
    kTaken,       ///< the receiver has copied or dropped `offer`
    kRefused,     ///< the receiver left; `offer` will not be copied
    kPeerFailed,  ///< rank `from` was killed
  };

  Kind kind = Kind::kControl;
  int from = 0;
  Tag tag = {};
  std::uint32_t checksum = 0;  ///< Transfer::checksum()
  std::size_t offset = 0;      ///< where the packet's bytes start in LoopbackBatch::bytes
  std::size_t length = 0;      ///< bytes of the message
  std::shared_ptr<LoopbackOffer> offer = nullptr;
};

/// The content of an inbox. Reader and inbox swap batches, so that both keep their capacity.
struct LoopbackBatch {
  std::vector<LoopbackPacket> packets;
  std::vector<std::byte> bytes;

  void clear() {
    packets.clear();
    bytes.clear();
  }
};

class LoopbackHub {
 public:
  enum class Delivery : std::uint8_t { kDelivered, kReceiverLeft, kReceiverKilled, kSenderKilled };

  explicit LoopbackHub(int size);

  int size() const { return static_cast<int>(inboxes_.size()); }

  /// For tests: as if the process of `rank` had died. Its peers learn of it by on_peer_failed().
  /// From now on, sends to this rank and sends by it fail.
  void kill(int rank);

 private:
  friend class LoopbackTransport;

  struct Inbox {
    std::mutex mutex;
    LoopbackBatch batch;               // guarded by mutex
    bool asleep = false;               // guarded by mutex: wake the reader at the next packet
    bool left = false;                 // guarded by mutex
    std::atomic<bool> filled = false;  // a hint: an idle reader need not take the mutex
    std::atomic<bool> killed = false;
    Waker waker;
  };

  Inbox& inbox(int rank) { return *inboxes_[static_cast<std::size_t>(rank)]; }

  /// Appends `packet` and a copy of `bytes` to the inbox of `to`.
  Delivery deliver(int to, LoopbackPacket packet, std::span<const std::byte> bytes);
  /// Swaps the inbox's content into `batch`, which must be empty; false if the inbox was empty.
  bool collect(int rank, LoopbackBatch& batch);
  /// False if the inbox is not empty. Otherwise the next packet signals the waker.
  bool arm(int rank);
  /// The rank reads no more. Returns the content of its inbox.
  LoopbackBatch leave(int rank);

  /// Offers memory that every rank may map while any rank still owns it. Returns its number.
  std::uint64_t offer_memory(const std::shared_ptr<void>& memory);
  /// Null if that memory is gone or was never offered.
  std::shared_ptr<void> memory_of(std::uint64_t number);

  std::vector<std::unique_ptr<Inbox>> inboxes_;
  std::mutex memory_mutex_;
  std::vector<std::weak_ptr<void>> memory_;  // guarded by memory_mutex_
};

}  // namespace kolo
