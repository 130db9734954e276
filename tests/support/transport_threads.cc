#include "tests/support/transport_threads.h"

#include "transport/loopback/loopback_hub.h"
#include "transport/loopback/loopback_transport.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kolo::test {
namespace {

class Deaf final : public TransportListener {
 public:
  void on_message(int, std::span<const std::byte>) override {}
  void on_peer_failed(int, const Error&) override {}
};

}  // namespace

void run_transport_threads(int size, const std::function<void(int, Transport&)>& body) {
  LoopbackHub hub(size);
  Deaf listener;
  const Abort abort;
  std::vector<std::unique_ptr<LoopbackTransport>> transports;
  std::vector<Peer> peers;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<LoopbackTransport>(hub, rank));
    peers.push_back({.address = transports.back()->address(), .same_host = true});
  }
  for (int rank = 0; rank < size; ++rank) {
    const Status connected = transports[static_cast<std::size_t>(rank)]->connect(
        rank, peers, listener, abort, Deadline::after(std::chrono::seconds(10)));
    ASSERT_TRUE(connected.ok()) << connected.error().message;
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] { body(rank, *transports[static_cast<std::size_t>(rank)]); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kolo::test
