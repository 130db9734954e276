// ForwardingTransport: base of decorators. It passes every call on to another transport; a
// decorator overrides what it changes.
//
// Threads: see transport.h.
#pragma once

#include "transport/transport.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

class ForwardingTransport : public Transport {
 public:
  std::string_view name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  std::string address() const override { return inner_->address(); }
  Status connect(int rank, std::vector<Peer> peers, TransportListener& listener, const Abort& abort,
                 Deadline deadline) override {
    return inner_->connect(rank, std::move(peers), listener, abort, deadline);
  }
  Status post_message(int peer, std::span<const std::byte> message) override {
    return inner_->post_message(peer, message);
  }
  void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) override {
    inner_->send(peer, tag, data, transfer);
  }
  void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) override {
    inner_->receive(peer, tag, data, transfer);
  }
  std::vector<MessageKey> unclaimed() const override { return inner_->unclaimed(); }
  LinkActivity activity(int peer) const override { return inner_->activity(peer); }
  const std::vector<int>& active_peers() const override { return inner_->active_peers(); }
  bool progress() override { return inner_->progress(); }
  int event_fd() const override { return inner_->event_fd(); }
  bool arm() override { return inner_->arm(); }
  Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t bytes) override {
    return inner_->allocate_mappable(bytes);
  }
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> bytes,
                                                        MemoryType type) override {
    return inner_->register_memory(bytes, type);
  }
  Result<std::string> reach_device(std::span<std::byte> memory) override {
    return inner_->reach_device(memory);
  }
  Result<std::unique_ptr<PeerMapping>> map_peer(int peer, std::string_view key) override {
    return inner_->map_peer(peer, key);
  }
  void forget(int peer) override { inner_->forget(peer); }
  Status flush(const Abort& abort, Deadline deadline) override {
    return inner_->flush(abort, deadline);
  }
  void fail_all(const Error& error) override { inner_->fail_all(error); }

 protected:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  const std::unique_ptr<Transport> inner_;
};

}  // namespace kolo
