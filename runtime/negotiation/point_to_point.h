// PointToPoint: matches one rank's send with another rank's receive. The sender offers its data.
// The receiver answers when it has a receive for the offer, and only then bytes move. So a send and
// a receive that do not fit fail on both sides and disturb nothing else. The n-th send to a rank
// under a tag matches the n-th receive there. A message that its own rank refuses keeps its place:
// it fails its counterpart with the reason. A receive from any rank (kAnyRank) takes the offer that
// came first; of it and a receive from the sender, the older one takes an offer. One for each
// process set; progress token holder only.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/submission/entry.h"

#include <kolo/config.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

class PointToPoint {
 public:
  using Clock = std::chrono::steady_clock;

  /// A settled send or receive: run it under `sequence`, or fail it with `error`.
  struct Settled {
    EntryPtr entry;
    std::uint64_t sequence = 0;
    std::optional<Error> error = std::nullopt;
    EntryPtr own_send = nullptr;  ///< the matching send of a receive from this rank itself
  };

  PointToPoint(const Communicator& communicator, ControlPlane& control_plane, const Config& config)
      : communicator_(communicator), control_plane_(control_plane), config_(config) {}

  /// Takes over a kSend or kReceive. One with a complaint has failed for its caller already, so it
  /// is never settled.
  Status add(EntryPtr entry);
  /// kOffer or kAnswer from a rank of the communicator.
  Status on_message(int peer, const Message& message);
  /// Takes the entries that were settled since the last call, in this order.
  std::vector<Settled> take_settled();

  /// Settles with kTimeout every entry that has waited longer than KOLO_OPERATION_TIMEOUT.
  void expire(Clock::time_point now);
  /// `peer` has shut down: settles with kPeerLost every entry that waits for it, now or later.
  /// Messages that it has accepted or sent are already under way and do not wait here.
  void peer_left(int peer);
  /// Messages to or from `peer` that it may have begun and this rank has not. This rank must tell
  /// `peer` of them when it leaves.
  std::uint64_t count_unstarted(int peer) const;
  bool has_pending() const { return pending_ > 0 || !settled_.empty(); }
  std::vector<EntryPtr> take_pending();

 private:
  struct Offer {
    std::uint64_t sequence = 0;
    std::uint64_t elements = 0;
    std::uint32_t tag = 0;
    DataType type = DataType::kFloat32;
    std::uint8_t on_device = 0;  ///< 1: the sender's memory is a device's
  };
  struct Answer {
    std::uint64_t sequence = 0;
    std::uint64_t elements = 0;  ///< what the receiver expects
    DataType type = DataType::kFloat32;
    std::uint8_t on_device = 0;  ///< 1: the receiver's memory is a device's
    bool accepted = false;
  };
  /// An offer or an answer, and why its rank has refused the message; empty: it has not.
  template <class Fields>
  struct Told {
    Fields fields;
    std::string complaint = {};
    std::uint64_t arrival = 0;  ///< numbers the offers that wait for a receive
  };
  using PeerAndTag = std::pair<int, std::uint32_t>;
  using PeerAndSequence = std::pair<int, std::uint64_t>;

  template <class Fields>
  static std::optional<Told<Fields>> read(std::span<const std::byte> bytes);
  template <class Fields>
  Status tell(int peer, MessageKind kind, const Fields& fields, const std::string& complaint);

  /// The offers that wait for this receive; end() if there are none.
  std::map<PeerAndTag, std::deque<Told<Offer>>>::iterator offers_for(const Entry& receive);
  /// The receives of which the oldest takes an offer; end() if there are none.
  std::map<PeerAndTag, std::deque<EntryPtr>>::iterator receives_for(const PeerAndTag& offer);
  Status meet(int peer, const Told<Offer>& offer, EntryPtr receive);
  /// Whether nobody is left who may send to, or receive from, the entry's rank.
  bool is_alone(const Entry& entry) const;
  Status take_answer(int peer, const Told<Answer>& answer);
  void settle_lost(EntryPtr entry);
  /// The error of a message whose other side `refuser` has refused.
  Error refused(int refuser, const Entry& entry, const std::string& complaint) const;
  Error mismatch(int from, int to, std::uint32_t tag, const Offer& sent,
                 const Answer& received) const;
  /// Index of the other rank, or kAnyRank.
  int index_of(const Entry& entry) const {
    return communicator_.index_of(entry.signature.root).value_or(kAnyRank);
  }

  const Communicator& communicator_;
  ControlPlane& control_plane_;
  const Config& config_;
  std::map<int, std::uint64_t> next_sequence_;  ///< by receiving rank
  std::map<PeerAndSequence, EntryPtr> sends_;
  std::map<PeerAndTag, std::deque<EntryPtr>> receives_;
  std::map<PeerAndTag, std::deque<Told<Offer>>> offers_;
  std::uint64_t arrivals_ = 0;
  std::set<int> gone_;
  std::vector<Settled> settled_;
  std::size_t pending_ = 0;  ///< entries in sends_ and receives_
};

}  // namespace kolo
