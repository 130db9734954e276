// A network card that reads and writes memory of an emulated device, for worlds of threads. It
// wraps a rank's transport and carries messages in memory that was registered with it. The device
// sees the card's writes only after Accelerator::take_network_writes(). Same threads as the
// transport that it wraps.
#pragma once

#include "tests/support/emulated_accelerator.h"
#include "transport/transport.h"

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace kolo::test {

struct EmulatedCardOptions {
  std::string refusal = {};  ///< why it does not reach the device; empty: it does
  bool registers = true;     ///< false: registrations after the first try are refused
};

class EmulatedCard final : public Transport, private TransferListener {
 public:
  EmulatedCard(std::unique_ptr<Transport> inner, std::shared_ptr<EmulatedDevice> device,
               EmulatedCardOptions options = {});

  std::string_view name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  std::string address() const override { return inner_->address(); }
  Status connect(int rank, std::vector<Peer> peers, TransportListener& listener, const Abort& abort,
                 Deadline deadline) override;
  Status post_message(int peer, std::span<const std::byte> message) override {
    return inner_->post_message(peer, message);
  }
  void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) override;
  void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) override;
  std::vector<MessageKey> unclaimed() const override { return inner_->unclaimed(); }
  LinkActivity activity(int peer) const override { return inner_->activity(peer); }
  bool progress() override { return inner_->progress(); }
  int event_fd() const override { return inner_->event_fd(); }
  bool arm() override { return inner_->arm(); }
  Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t bytes) override {
    return inner_->allocate_mappable(bytes);
  }
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> bytes,
                                                        MemoryType type) override;
  Result<std::string> reach_device(std::span<std::byte> memory) override;
  Result<std::unique_ptr<PeerMapping>> map_peer(int peer, std::string_view key) override {
    return inner_->map_peer(peer, key);
  }
  Status flush(const Abort& abort, Deadline deadline) override {
    return inner_->flush(abort, deadline);
  }
  void fail_all(const Error& error) override { inner_->fail_all(error); }

 private:
  /// A message on its way into device memory.
  struct Landing {
    Landing(EmulatedCard& card, std::span<std::byte> data, Transfer& transfer)
        : bytes(data.size()), destination(data), outer(&transfer), inner(card, 0) {}
    std::vector<std::byte> bytes;
    std::span<std::byte> destination;
    Transfer* outer;
    Transfer inner;
  };

  /// Whether the message lies on the device: in registered memory, with the peer on another host.
  bool is_devices(int peer, std::span<const std::byte> data, const Transfer& transfer) const;
  void on_transfer_done(Transfer& transfer) override;
  Error mismatch(const Transfer& transfer, const TransferEnd& receiver,
                 const TransferEnd& sender) const override;

  const std::unique_ptr<Transport> inner_;
  const std::shared_ptr<EmulatedDevice> device_;
  const EmulatedCardOptions options_;
  std::vector<Peer> peers_;
  std::list<Landing> landings_;
};

}  // namespace kolo::test
