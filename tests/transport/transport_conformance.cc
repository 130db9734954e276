// The ranks and worlds of the conformance suite.
#include "tests/transport/transport_conformance.h"

#include "transport/wait.h"

#include <thread>

namespace kolo::test {

Transfer& ConformanceRank::send(int peer, Tag tag, std::span<const std::byte> data,
                                const MemoryRegion* memory) {
  Transfer& sent = transfer(memory);
  transport.send(peer, tag, data, sent);
  return sent;
}

Transfer& ConformanceRank::receive(int peer, Tag tag, std::span<std::byte> data,
                                   const MemoryRegion* memory) {
  Transfer& received = transfer(memory);
  transport.receive(peer, tag, data, received);
  return received;
}

Status ConformanceRank::post(int peer, std::string_view text) {
  return transport.post_message(peer, std::as_bytes(std::span(text)));
}

void ConformanceRank::wait(const std::function<bool()>& done, const char* what) {
  const Abort never;
  const Status status =
      progress_until(transport, done, never, Deadline::after(std::chrono::seconds(10)), what);
  EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status.error().message;
}

void ConformanceRank::wait_for_all() {
  wait(
      [this] {
        for (const Transfer& each : transfers_) {
          if (each.state() == Transfer::State::kPending) return false;
        }
        return true;
      },
      "transfers were pending");
  for (const Transfer& each : transfers_) {
    EXPECT_EQ(each.state(), Transfer::State::kDone) << "rank " << rank << " id " << each.id();
  }
}

void ConformanceRank::meet() {
  met_ += size;
  ++meeting_;
  wait([this] { return meeting_ >= met_; }, "the ranks met");
}

void ConformanceRank::on_message(int peer, std::span<const std::byte> message) {
  messages.emplace_back(peer,
                        std::string(reinterpret_cast<const char*>(message.data()), message.size()));
}

void ConformanceRank::on_peer_failed(int peer, const Error& error) {
  EXPECT_EQ(error.code, ErrorCode::kPeerLost);
  failed_peers.push_back(peer);
}

void ConformanceRank::on_transfer_done(Transfer& transfer) {
  EXPECT_NE(transfer.state(), Transfer::State::kPending);
  EXPECT_EQ(transfer.state() == Transfer::State::kDone, transfer.status().ok());
}

void TransportConformance::run(int size, const Body& body) {
  const std::unique_ptr<TransportWorld> world = GetParam().make(size);
  ASSERT_NE(world, nullptr);
  std::vector<Peer> peers;
  for (int rank = 0; rank < size; ++rank) {
    peers.push_back({.address = world->at(rank).address(), .same_host = GetParam().same_host});
  }
  std::atomic<int> meeting = 0;
  std::deque<ConformanceRank> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back(rank, size, world->at(rank), meeting);
  std::vector<std::thread> threads;
  for (ConformanceRank& rank : ranks) {
    threads.emplace_back([&rank, &peers, &body, &world] {
      const Status connected = rank.transport.connect(rank.rank, peers, rank, rank.abort,
                                                      Deadline::after(std::chrono::seconds(10)));
      EXPECT_TRUE(connected.ok()) << connected.error().message;
      rank.meet();
      body(rank);
      rank.meet();
      world->close(rank.rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kolo::test
