// LoopbackTransport: one rank of a world whose ranks are threads of one process. Carries every test
// that needs N ranks without N processes, also under ThreadSanitizer and AddressSanitizer, and
// every world of one. Threads: see transport.h; one thread drives each rank.
//
// Small messages are copied into the receiver's inbox. Large ones are offered: the receiver copies
// straight from the sender's memory and then reports back (see LoopbackOffer).
#pragma once

#include "transport/loopback/loopback_hub.h"
#include "transport/message_matcher.h"
#include "transport/transport.h"

#include <optional>

namespace kolo {

class LoopbackTransport final : public Transport {
 public:
  /// Messages up to this size are copied twice; larger ones are offered.
  static constexpr std::size_t kEagerLimit = 8 * 1024;

  /// `rank`: index in the hub, which outlives the transport.
  LoopbackTransport(LoopbackHub& hub, int rank);
  ~LoopbackTransport() override;
  LoopbackTransport(const LoopbackTransport&) = delete;
  LoopbackTransport& operator=(const LoopbackTransport&) = delete;

  std::string_view name() const override { return "loopback"; }
  std::string description() const override;
  std::string address() const override;
  Status connect(int rank, std::vector<Peer> peers, TransportListener& listener, const Abort& abort,
                 Deadline deadline) override;
  Status post_message(int peer, std::span<const std::byte> message) override;
  void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) override;
  void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) override;
  std::vector<MessageKey> unclaimed() const override { return matcher_.unclaimed(); }
  LinkActivity activity(int peer) const override {
    return activity_[static_cast<std::size_t>(peer)];
  }
  const std::vector<int>& active_peers() const override { return active_peers_; }
  bool progress() override;
  int event_fd() const override;
  bool arm() override { return hub_.arm(rank_); }
  Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t bytes) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> bytes,
                                                        MemoryType type) override;
  Result<std::string> reach_device(std::span<std::byte> memory) override;
  Result<std::unique_ptr<PeerMapping>> map_peer(int peer, std::string_view key) override;
  void forget(int) override {}
  Status flush(const Abort& abort, Deadline deadline) override;
  void fail_all(const Error& error) override;

 private:
  /// A message that came before its receive.
  struct Arrival {
    std::vector<std::byte> bytes;          // for an eager message
    std::shared_ptr<LoopbackOffer> offer;  // for a large message
    std::uint64_t call = 0;                // Tag::call
    std::uint32_t checksum = 0;            // Transfer::checksum()
  };
  /// A large send that its receiver has not yet copied.
  struct PendingSend {
    std::shared_ptr<LoopbackOffer> offer;
    Transfer* transfer = nullptr;
    int peer = 0;
  };

  Status check_peer(int peer) const;
  /// What has passed between this rank and that peer; something is about to.
  LinkActivity& activate(int peer);
  Status delivered(int peer, LoopbackHub::Delivery delivery) const;
  void handle(const LoopbackPacket& packet, std::span<const std::byte> bytes);
  void copy_eager(const PostedReceive& receive, const TransferEnd& sent,
                  std::span<const std::byte> bytes);
  void copy_offer(const PostedReceive& receive, const TransferEnd& sent,
                  const std::shared_ptr<LoopbackOffer>& offer);
  PendingSend take_pending(std::size_t slot);
  void withdraw_offers();

  LoopbackHub& hub_;
  const int rank_;
  TransportListener* listener_ = nullptr;
  std::optional<Error> failure_;  // set by fail_all()
  MessageMatcher<Arrival> matcher_;
  std::vector<PendingSend> pending_;  // by LoopbackOffer::slot; free slots have no offer
  std::vector<std::size_t> free_slots_;
  std::size_t sends_pending_ = 0;
  std::vector<LinkActivity> activity_;
  std::vector<int> active_peers_;
  std::vector<bool> reported_;  // peers whose failure the listener was told
  LoopbackBatch batch_;         // what progress() is handling
  bool progressing_ = false;
};

}  // namespace kolo
