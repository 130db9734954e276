// Transport: how bytes move between ranks. A small interface (after gloo's and tensorpipe's), so
// that UCX, shared memory and an in-process loopback are interchangeable; tests/transport has the
// conformance suite that each implementation passes.
//
// Threads: after connect(), every call but event_fd() is made by the one thread that drives, the
// holder of the progress token. No call blocks except connect(), flush() and the destructor, and
// those take a deadline.
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

/// What arrives unasked. Called from within progress().
class TransportListener {
 public:
  /// A control message; `message` lives until the call returns.
  virtual void on_message(int peer, std::span<const std::byte> message) = 0;
  /// The transport noticed that `peer` is gone. Told at most once a peer.
  virtual void on_peer_failed(int peer, const Error& error) = 0;

 protected:
  ~TransportListener() = default;
};

/// One rank as its peers need to know it.
struct Peer {
  std::string address;     ///< Transport::address() of that rank
  bool same_host = false;  ///< by host identity, not by name
};

/// What there was between this rank and another.
struct LinkActivity {
  bool opened = false;         ///< this rank has sent something
  std::uint64_t arrivals = 0;  ///< messages that have come, tagged ones included
};

class Transport {
 public:
  /// Bytes of a control message.
  static constexpr std::size_t kLargestMessage = 16 << 20;

  virtual ~Transport() = default;

  /// "ucx", "loopback".
  virtual std::string_view name() const = 0;
  /// One line for people: library, loaded version, what carries the bytes.
  virtual std::string description() const = 0;

  /// Opaque; peers pass it to connect(). At most 64 KiB.
  virtual std::string address() const = 0;

  /// Makes the peers known; peers[rank] is this rank. Links may be opened lazily.
  virtual Status connect(int rank, std::vector<Peer> peers, TransportListener& listener,
                         const Abort& abort, Deadline deadline) = 0;

  /// Sends a control message, small as a rule, which is copied before the call returns. Messages to
  /// one peer arrive in order. Also to oneself. One to a peer that is gone goes nowhere, and is
  /// no error: on_peer_failed() tells that, or the peer's own last message, perhaps still on its
  /// way.
  virtual Status post_message(int peer, std::span<const std::byte> message) = 0;

  /// Tagged transfer. A receive matches the send of the same peer and tag with the same length; a
  /// different length, or another Tag::call, fails the receive. Several under one tag match in
  /// order. Zero length is fine. The outcome goes to the transfer's listener, perhaps before the
  /// call returns. Send and receive to oneself work. Memory of a device is that of a region that
  /// the transfer names; it goes to ranks of other hosts, and into memory of devices there.
  virtual void send(int peer, Tag tag, std::span<const std::byte> data, Transfer& transfer) = 0;
  virtual void receive(int peer, Tag tag, std::span<std::byte> data, Transfer& transfer) = 0;

  /// Tagged messages that have come, with their Tag::call, and that no receive has met.
  virtual std::vector<MessageKey> unclaimed() const = 0;

  /// Of a rank that connect() named. Never opens a link.
  virtual LinkActivity activity(int peer) const = 0;

  /// Moves everything that can move now; true if anything happened.
  virtual bool progress() = 0;

  /// Blocking: a descriptor that becomes readable when something arrives after arm() returned true.
  /// arm() == false: something is already there, call progress(). Callers bound their poll() all
  /// the same, since libraries miss events.
  virtual int event_fd() const = 0;
  virtual bool arm() = 0;

  /// Memory that peers on this host can map. kOutOfMemory or kUnsupported when there is none.
  virtual Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t bytes) = 0;
  /// The same as address space that has memory only where it is committed (MemoryRegion::commit()).
  /// It does not depend on the transport, and may outlive it. So many `ranks` map such regions of
  /// one another: kOutOfMemory where this process has no addresses for all of them. kUnsupported
  /// where there is no such thing.
  virtual Result<std::unique_ptr<MemoryRegion>> reserve_mappable(std::size_t bytes, int ranks) = 0;
  /// Registers the caller's memory, so that large transfers from it need no staging. kUnsupported
  /// or kTransport where the transport can do nothing with memory of that type.
  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> bytes,
                                                                MemoryType type) = 0;
  /// Whether messages between this host and others go from memory of a device, and into it, without
  /// the host's: how, in words, or kUnsupported, and why not. `memory` is some of it, to be tried.
  virtual Result<std::string> reach_device(std::span<std::byte> memory) = 0;
  /// Maps a region that `peer` allocated or reserved. kUnsupported when it cannot.
  virtual Result<std::unique_ptr<PeerMapping>> map_peer(int peer, std::string_view key) = 0;

  /// Progresses until everything sent has left this process or the deadline has passed.
  virtual Status flush(const Abort& abort, Deadline deadline) = 0;

  /// After a failure: fails every pending transfer with `error`. When this returns, no memory of a
  /// transfer is read or written any more, and further sends and receives fail at once.
  virtual void fail_all(const Error& error) = 0;
};

}  // namespace kolo
