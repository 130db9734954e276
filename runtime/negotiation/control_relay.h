// ControlRelay: carries negotiation messages between rank 0 and the others, through the
// ControlTree. Ranks tell rank 0 what they are ready for; rank 0 tells all ranks what to run, and
// all take it in one order. Progress token holder only.
//
// A rank between may leave before those below it, which may still make calls that only some ranks
// announce. So what such a call needs goes directly from its ranks to rank 0 and from there to all;
// so do errors. Whatever else is on its way needs the rank that has left, and fails.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/negotiation/slot_set.h"
#include "runtime/negotiation/subtree_ready.h"
#include "runtime/negotiation/wire.h"

#include <kolo/error.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kolo {

class ControlRelay {
 public:
  using Clock = std::chrono::steady_clock;

  /// Takes what has arrived. A failure ends the job's communication.
  class Receiver {
   public:
    /// Rank 0: some ranks, by their places in the tree, are ready for these slots.
    virtual Status take_ready(Places ranks, const SlotsBySteps& slots, Clock::time_point now) = 0;
    /// Rank 0: a rank announces a call in full.
    virtual Status take_request(const Request& request, Clock::time_point now) = 0;
    /// Other ranks: whether take_told() may be called now. If not, take_early() later.
    virtual bool takes_told() = 0;
    /// Other ranks: what rank 0 has told all. False if it is malformed.
    virtual Result<bool> take_told(MessageKind kind, std::span<const std::byte> told) = 0;

   protected:
    ~Receiver() = default;
  };

  ControlRelay(const Communicator& communicator, ControlPlane& control_plane, int degree,
               Receiver& receiver);

  const ControlTree& tree() const { return tree_; }
  /// Messages that this rank has sent or passed on.
  std::uint64_t messages() const { return messages_; }

  /// This rank is ready for these.
  Status send_ready(const SlotsBySteps& slots, std::vector<Request> requests,
                    Clock::time_point now);
  /// Rank 0: tells all ranks, each after what it was told before: through the tree, or each
  /// `directly`.
  Status tell_all(MessageKind kind, std::string_view payload, bool directly);

  /// Handles a message from `peer`. `slots`: size of the response cache that the sender may have.
  Status on_message(int peer, const Message& message, std::uint32_t slots);
  /// Takes what rank 0 has told before the receiver took it.
  Status take_early();
  /// A rank between: passes on what the ranks below it are ready for. Returns whether there was
  /// anything.
  Result<bool> pass_on(Clock::time_point now);
  /// When pass_on() will be due; nothing if nothing is held.
  std::optional<Clock::time_point> due() const;

  /// The calls of this slot that were announced are decided.
  void settle(std::uint32_t slot) { below_.settle(slot); }
  /// Whether a rank between waits for those below it to announce the same. It need not once a rank
  /// has joined, which announces nothing.
  void hold(bool holds) { holds_ = holds; }

 private:
  bool is_coordinator() const { return communicator_.rank() == 0; }
  Status send_up(MessageKind kind, std::string_view payload);
  Status hold_ready(Places ranks, const SlotsBySteps& slots, Clock::time_point now);
  Status hold_requests(std::string_view list);
  Status send_held();
  Status pass_down(MessageKind kind, std::string_view told);
  Status on_ready(Places ranks, const SlotsBySteps& slots);
  Status on_requests(const std::vector<Request>& requests, Clock::time_point now);
  Status on_told(int peer, const Message& message);
  bool is_next(std::uint64_t number) { return number == told_ + 1 && receiver_.takes_told(); }
  Status take_told(MessageKind kind, std::span<const std::byte> told);
  Error malformed(int peer, MessageKind kind) const;

  const Communicator& communicator_;
  ControlPlane& control_plane_;
  Receiver& receiver_;
  const ControlTree tree_;
  std::uint64_t messages_ = 0;

  // Up.
  SubtreeReady below_;  ///< ranks between only
  bool holds_ = true;
  std::string requests_;  ///< a list from here and below that pass_on() sends after the bits
  std::uint64_t announced_by_some_ = 0;  ///< this rank's calls by some ranks alone
  /// Rank 0, by rank: such calls that it has announced; and joins that have overtaken some of them.
  std::unordered_map<int, std::uint64_t> announced_by_some_of_;
  std::vector<Request> early_joins_;

  // Down.
  std::uint64_t told_ = 0;  ///< messages to all that were sent, or taken
  std::map<std::uint64_t, std::pair<MessageKind, std::string>> told_early_;
};

}  // namespace kolo
