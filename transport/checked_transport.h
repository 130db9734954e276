// CheckedTransport: a decorator that finds what damages messages between sender and receiver
// (KOLO_WIRE_CHECK). Runtime::start() puts it around the job's transport.
//
// - A tagged message has a checksum beside it (Transfer::checksum()), a control message has one at
//   its end. Both cover the bytes, the length, and who sends what to whom.
// - A receive whose message has another checksum fails with kTransport. A damaged control message
//   ends the transport's service: TransportListener::on_failed(). Both errors name the two ranks
//   and the two checksums.
// - The processor makes the checksums, so messages must be in host memory: the network reaches no
//   device memory. What ranks write to mapped memory is not checked; Runtime::start() maps none.
//
// Threads: see transport.h.
#pragma once

#include "transport/forwarding_transport.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

class CheckedTransport final : public ForwardingTransport, TransportListener, TransferListener {
 public:
  /// Bytes that a control message needs beside its own.
  static constexpr std::size_t kControlChecksum = sizeof(std::uint32_t);

  explicit CheckedTransport(std::unique_ptr<Transport> inner)
      : ForwardingTransport(std::move(inner)) {}

  std::string description() const override {
    return inner_->description() + ", messages with checksums";
  }
  Status connect(int rank, std::vector<Peer> peers, TransportListener& listener, const Abort& abort,
                 Deadline deadline) override;
  Status post_message(int peer, std::span<const std::byte> message) override;
  void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) override;
  void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> bytes,
                                                        MemoryType type) override;
  Result<std::string> reach_device(std::span<std::byte> memory) override;

 private:
  /// A receive under way.
  struct Receive {
    int peer = 0;
    Tag tag = {};
    std::span<std::byte> data = {};
    Transfer* outer = nullptr;
    Transfer inner = {};
  };

  void on_message(int peer, std::span<const std::byte> message) override;
  void on_peer_failed(int peer, const Error& error) override {
    listener_->on_peer_failed(peer, error);
  }
  void on_failed(const Error& error) override { listener_->on_failed(error); }
  void on_transfer_done(Transfer& transfer) override;
  Error mismatch(const Transfer& transfer, const TransferEnd& receiver,
                 const TransferEnd& sender) const override {
    return receives_[transfer.id()].outer->mismatch(receiver, sender);
  }

  int rank_ = -1;
  TransportListener* listener_ = nullptr;
  std::deque<Receive> receives_;  ///< by Transfer::id() of `inner`; addresses are stable
  std::vector<std::uint32_t> free_receives_;
  std::vector<std::byte> message_;  ///< a control message with its checksum
};

}  // namespace kolo
