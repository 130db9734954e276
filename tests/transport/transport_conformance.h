// The conformance suite of transports (after tensorpipe's): tests of transport.h's promises, which
// each transport instantiates with a maker of worlds. The cases are in transport_conformance_*.cc.
// A world is N ranks, each a thread with its transport.
#pragma once

#include "tests/support/pattern.h"
#include "transport/transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test {

/// A transport's part of the suite: an unconnected transport for each rank.
class TransportWorld {
 public:
  virtual ~TransportWorld() = default;
  virtual Transport& at(int rank) = 0;
  /// Destroys the transport of one rank, on its thread, at about the time when the others do.
  virtual void close(int /*rank*/) {}
};

struct TransportMaker {
  std::string name;
  std::function<std::unique_ptr<TransportWorld>(int size)> make;
  bool same_host = true;  ///< what the ranks are told about their hosts
  /// False if a peer may still read (not write) the memory of a failed transfer.
  bool reads_end_with_fail_all = true;
  /// Bytes of the largest control message that users can send.
  std::size_t largest_message = Transport::kLargestMessage;

  friend void PrintTo(const TransportMaker& maker, std::ostream* out) { *out << maker.name; }
};

/// One rank of a running world; its functions are called on that rank's thread.
class ConformanceRank final : public TransportListener, public TransferListener {
 public:
  ConformanceRank(int its_rank, int world_size, Transport& its_transport, std::atomic<int>& meeting)
      : rank(its_rank), size(world_size), transport(its_transport), meeting_(meeting) {}

  const int rank;
  const int size;
  Transport& transport;
  Abort abort;

  std::vector<std::pair<int, std::string>> messages;  // what arrived: peer, text
  std::vector<int> failed_peers;

  /// The peer's rank in a world of two.
  int other() const { return 1 - rank; }
  /// A transfer with a stable address.
  Transfer& transfer(const MemoryRegion* memory = nullptr) {
    return transfers_.emplace_back(*this, next_id_++, memory);
  }
  /// `memory`: the registered region that contains `data`.
  Transfer& send(int peer, Tag tag, std::span<const std::byte> data,
                 const MemoryRegion* memory = nullptr);
  Transfer& receive(int peer, Tag tag, std::span<std::byte> data,
                    const MemoryRegion* memory = nullptr);
  Status post(int peer, std::string_view text);

  /// Progresses until `done`; the test fails after ten seconds.
  void wait(const std::function<bool()>& done, const char* what);
  /// Waits for every transfer so far and expects success.
  void wait_for_all();
  /// Progresses until every rank has called this as often.
  void meet();

  void on_message(int peer, std::span<const std::byte> message) override;
  void on_peer_failed(int peer, const Error& error) override;
  void on_transfer_done(Transfer& transfer) override;

 private:
  std::atomic<int>& meeting_;
  int met_ = 0;
  std::deque<Transfer> transfers_;
  std::uint32_t next_id_ = 0;
};

class TransportConformance : public testing::TestWithParam<TransportMaker> {
 protected:
  using Body = std::function<void(ConformanceRank&)>;

  /// Runs body(rank) on a thread for each rank. All ranks are connected before, and progress until
  /// all bodies have returned. Then all transports are destroyed at the same time, as at the end of
  /// a program.
  void run(int size, const Body& body);
};

inline Tag tag(std::uint32_t step, std::uint64_t operation = 1) {
  return {.communicator = 3, .step = step, .operation = operation};
}

}  // namespace kolo::test
