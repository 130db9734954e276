// A network card that reads and writes memory of an emulated device, for worlds of threads. It
// wraps a rank's transport and carries messages in memory that was registered with it. The device
// sees the card's writes only after Accelerator::take_network_writes(). Same threads as the
// transport that it wraps.
#pragma once

#include "tests/support/emulated_accelerator.h"
#include "transport/forwarding_transport.h"

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

class EmulatedCard final : public ForwardingTransport, private TransferListener {
 public:
  EmulatedCard(std::unique_ptr<Transport> inner, std::shared_ptr<EmulatedDevice> device,
               EmulatedCardOptions options = {});

  Status connect(int rank, std::vector<Peer> peers, TransportListener& listener, const Abort& abort,
                 Deadline deadline) override;
  void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) override;
  void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> bytes,
                                                        MemoryType type) override;
  Result<std::string> reach_device(std::span<std::byte> memory) override;

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

  const std::shared_ptr<EmulatedDevice> device_;
  const EmulatedCardOptions options_;
  std::vector<Peer> peers_;
  std::list<Landing> landings_;
};

}  // namespace kolo::test
