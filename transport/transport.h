// Transport: moves bytes between ranks. A small interface (after gloo's and tensorpipe's), so that
// UCX, shared memory and an in-process loopback are interchangeable. tests/transport has the
// conformance suite that each implementation passes.
//
// Threads: after connect(), only the holder of the progress token makes calls, except event_fd(),
// which any thread may call. No call blocks except connect(), flush() and the destructor, and those
// take a deadline.
#pragma once

#include "runtime/base/abort.h"
#include "runtime/base/deadline.h"
#include "transport/memory_region.h"
#include "transport/tag.h"
#include "transport/transfer.h"

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// Takes what arrives unasked. Called from within progress().
class TransportListener {
 public:
  /// A control message; `message` lives until the call returns.
  virtual void on_message(int peer, std::span<const std::byte> message) = 0;
  /// The transport noticed that `peer` is gone. Called at most once per peer.
  virtual void on_peer_failed(int peer, const Error& error) = 0;
  /// The transport carries nothing any more, for a reason that names no peer. Called once at most.
  virtual void on_failed(const Error& /*error*/) {}

 protected:
  ~TransportListener() = default;
};

/// What peers need to know about one rank.
struct Peer {
  std::string address;     ///< Transport::address() of that rank
  bool same_host = false;  ///< by host identity, not by name
};

/// What has passed between this rank and another.
struct LinkActivity {
  bool opened = false;         ///< this rank has sent something
  std::uint64_t arrivals = 0;  ///< messages that have come, tagged ones included
};

class Transport {
 public:
  /// Largest control message, in bytes.
  static constexpr std::size_t kLargestMessage = 16 << 20;
  /// Among up to so many ranks, connect() may open all links.
  static constexpr int kFewRanks = 64;

  virtual ~Transport() = default;

  /// "ucx", "loopback".
  virtual std::string_view name() const = 0;
  /// One line for people: library, loaded version, and what carries the bytes.
  virtual std::string description() const = 0;

  /// Opaque; peers pass it to connect(). At most 64 KiB.
  virtual std::string address() const = 0;

  /// Makes the peers known; peers[rank] is this rank. Links may be opened lazily.
  virtual Status connect(int rank, std::vector<Peer> peers, TransportListener& listener,
                         const Abort& abort, Deadline deadline) = 0;

  /// Sends a control message, usually a small one, and copies it before the call returns. Messages
  /// to one peer arrive in order. Sending to oneself works. A message to a peer that is gone is
  /// dropped without an error: on_peer_failed(), or the peer's own last message, reports the loss.
  virtual Status post_message(int peer, std::span<const std::byte> message) = 0;

  /// Tagged transfers. A receive matches a send of the same peer and tag; several under one tag
  /// match in order. The receive fails if length or Tag::call differ. Zero length is valid. The
  /// transfer's listener gets the outcome, perhaps before the call returns. Send and receive to
  /// oneself work. Device memory must belong to the region that the transfer names. It goes only to
  /// ranks of other hosts, into device memory there.
  virtual void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) = 0;
  virtual void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) = 0;

  /// Tagged messages that have arrived and that no receive has matched, with their Tag::call.
  virtual std::vector<MessageKey> unclaimed() const = 0;

  /// `peer`: any rank that connect() named. Never opens a link.
  virtual LinkActivity activity(int peer) const = 0;
  /// The peers to which this rank has sent, or from which something has come, in the order in which
  /// that began.
  virtual const std::vector<int>& active_peers() const = 0;

  /// Moves everything that can move now; true if anything happened.
  virtual bool progress() = 0;

  /// To sleep: once arm() has returned true, this descriptor becomes readable when something
  /// arrives. If arm() returns false, something is there already: call progress(). Callers must
  /// bound their poll() anyway, since libraries miss events.
  virtual int event_fd() const = 0;
  virtual bool arm() = 0;

  /// Memory that peers on this host can map. kOutOfMemory or kUnsupported if there is none.
  virtual Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t bytes) = 0;
  /// Registers the caller's memory, so that large transfers from it need no staging. kUnsupported
  /// or kTransport if the transport cannot use memory of that type.
  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> bytes,
                                                                MemoryType type) = 0;
  /// Tests whether messages between hosts go directly from and into device memory, without host
  /// memory: how, in words, or kUnsupported with the reason. `memory`: device memory to test with.
  virtual Result<std::string> reach_device(std::span<std::byte> memory) = 0;
  /// Maps a region that `peer` allocated or reserved. kUnsupported if that is not possible.
  virtual Result<std::unique_ptr<PeerMapping>> map_peer(int peer, std::string_view key) = 0;

  /// The process of `peer`, on this host, has ended. From now on nothing waits for what it was to
  /// take or to give, or for what is on its way to it.
  virtual void forget(int peer) = 0;

  /// Progresses until everything sent has left this process, or until the deadline.
  virtual Status flush(const Abort& abort, Deadline deadline) = 0;

  /// After a failure: fails every pending transfer with `error`. From then on, no memory of a
  /// transfer is read or written, and further sends and receives fail at once.
  virtual void fail_all(const Error& error) = 0;
};

}  // namespace kolo
