// A transport whose transfers a test completes by hand, in any order and with any outcome: for
// tests of the executor's work between transfers. One thread. Header-only.
#pragma once

#include "runtime/base/check.h"
#include "transport/transport.h"

#include <functional>
#include <vector>

namespace kolo::test {

class ManualTransport : public Transport {
 public:
  struct Posted {
    bool is_send = false;
    int peer = 0;
    Tag tag;
    std::span<std::byte> data;  // for a send: must not be written
    Transfer* transfer = nullptr;
  };

  /// All transfers that are posted and not yet completed, oldest first.
  std::vector<Posted> posted;
  /// Called at each posting, if set.
  std::function<void()> on_post;

  void complete(std::size_t index, Status status = {}) {
    Transfer& transfer = *posted[index].transfer;
    posted.erase(posted.begin() + static_cast<std::ptrdiff_t>(index));
    transfer.finish(std::move(status));
  }

  void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) override {
    transfer.start();
    auto* const bytes = const_cast<std::byte*>(data.data());
    posted.push_back({true, peer, tag, {bytes, data.size()}, &transfer});
    if (on_post) on_post();
  }
  void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) override {
    transfer.start();
    posted.push_back({false, peer, tag, data, &transfer});
    if (on_post) on_post();
  }

  // Functions that the executor and the arena do not use.
  std::string_view name() const override { return "manual"; }
  std::string description() const override { return "manual"; }
  std::string address() const override { return "manual"; }
  Status connect(int, std::vector<Peer>, TransportListener&, const Abort&, Deadline) override {
    return {};
  }
  Status post_message(int, std::span<const std::byte>) override { return {}; }
  std::vector<MessageKey> unclaimed() const override { return {}; }
  LinkActivity activity(int) const override { return {}; }
  const std::vector<int>& active_peers() const override { return no_peers_; }
  bool progress() override { return false; }
  int event_fd() const override { return -1; }
  bool arm() override { return false; }
  Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t) override {
    return KOLO_ERROR(kUnsupported, "a manual transport maps no memory");
  }
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte>, MemoryType) override {
    return KOLO_ERROR(kUnsupported, "a manual transport registers no memory");
  }
  Result<std::string> reach_device(std::span<std::byte>) override {
    return KOLO_ERROR(kUnsupported, "a manual transport reaches no device");
  }
  Result<std::unique_ptr<PeerMapping>> map_peer(int, std::string_view) override {
    return KOLO_ERROR(kUnsupported, "a manual transport maps no memory");
  }
  void forget(int) override {}
  Status flush(const Abort&, Deadline) override { return {}; }
  void fail_all(const Error& error) override {
    while (!posted.empty()) complete(0, error);
  }

 private:
  std::vector<int> no_peers_;
};

}  // namespace kolo::test
