// FaultyTransport: a decorator that delays, drops, fails or damages the calls that a test picks,
// for tests of the layers above on a misbehaving network. Same threads as the transport that it
// wraps; faults are set on that rank's thread or before it starts.
#pragma once

#include "transport/forwarding_transport.h"

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace kolo::test {

enum class Fault {
  kNone,
  kDelay,   ///< starts some calls of progress() later, so that others overtake it
  kDrop,    ///< never happens; a transfer stays pending until fail_all()
  kFail,    ///< a transfer fails at once; a control message is refused
  kDamage,  ///< one bit of what is sent flips on its way, if it has any
};

/// The properties by which a test decides on a fault.
struct FaultyCall {
  enum class Kind { kSend, kReceive, kMessage };
  Kind kind = Kind::kSend;
  int peer = 0;
  Tag tag = {};  // for sends and receives
  std::size_t length = 0;
  std::size_t number = 0;  // earlier calls of this kind
};

class FaultyTransport : public ForwardingTransport {
 public:
  using Decide = std::function<Fault(const FaultyCall&)>;

  /// `seed` chooses the delays, 1 to 20 calls of progress(). Calls under one tag, and control
  /// messages to one peer, stay in order, as transport.h promises.
  FaultyTransport(std::unique_ptr<Transport> inner, Decide decide, unsigned seed = 1);
  ~FaultyTransport() override;

  /// Tells the listener within the next progress() that `peer` is gone; sends to the peer fail.
  void lose(int peer);
  /// While `deaf` is true, progress() receives nothing; any thread may set it. Call before the
  /// start.
  void deafen(const std::atomic<bool>& deaf) { deaf_ = &deaf; }
  /// While `starving` is true, mappable memory gets no more pages; any thread may set it. Call
  /// before the start.
  void starve(const std::atomic<bool>& starving) { starving_ = &starving; }

  std::string description() const override;
  Status connect(int rank, std::vector<Peer> peers, TransportListener& listener, const Abort& abort,
                 Deadline deadline) override;
  Status post_message(int peer, std::span<const std::byte> message) override;
  void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) override;
  void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) override;
  bool progress() override;
  bool arm() override;
  Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t bytes) override;
  Status flush(const Abort& abort, Deadline deadline) override;
  void fail_all(const Error& error) override;

 private:
  /// A delayed or dropped call; a dropped call is never due.
  struct Held {
    FaultyCall call;
    Transfer* transfer = nullptr;
    std::span<std::byte> data;  // for a send: never written
    std::vector<std::byte> message;
    std::size_t due = 0;
  };

  Fault decide(FaultyCall& call);
  Error injected(const FaultyCall& call) const;
  bool follows_a_held_one(const FaultyCall& call) const;
  void hold(Held held, Fault fault);
  void let_go(Held held);
  /// A copy with one bit flipped. Lives as long as this transport.
  std::span<std::byte> damaged(std::span<const std::byte> data);
  void transfer_call(FaultyCall call, std::span<std::byte> data, Transfer& transfer);

  Decide decide_;
  std::minstd_rand random_;
  int rank_ = -1;
  int size_ = 0;
  TransportListener* listener_ = nullptr;
  std::deque<Held> held_;  // in the order of the calls
  std::deque<std::vector<std::byte>> damaged_;
  std::size_t counts_[3] = {};
  std::size_t now_ = 0;       // calls of progress()
  std::map<int, bool> lost_;  // peer: reported
  std::optional<Error> failure_;
  const std::atomic<bool>* deaf_ = nullptr;
  const std::atomic<bool>* starving_ = nullptr;
};

}  // namespace kolo::test
