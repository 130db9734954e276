// Controller: by it every rank agrees on the same ordered list of responses (Horovod's controller,
// without its cycle). Each rank tells the coordinator, rank 0, what it is ready for: a bit for a
// cached tensor, a request for a new one. Rank 0 tells all what to run. Token holder only.
#pragma once

#include "runtime/base/log.h"
#include "runtime/communicator/control_plane.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/ready_slots.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/negotiation/slot_set.h"
#include "runtime/negotiation/waiting_entries.h"
#include "runtime/negotiation/wire.h"

#include <kolo/config.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// A response together with what this rank submitted for it; nothing but the name and signature,
/// and no Work, if it has joined.
struct Agreed {
  std::shared_ptr<const Response> response;
  EntryPtr entry;
};

/// A rank of the communicator that has joined.
struct JoinedRank {
  std::int64_t rank = 0;
  std::int64_t calls = 0;  ///< of the ordered door, that it has made
};

class Controller {
 public:
  using Clock = std::chrono::steady_clock;

  struct Counters {
    std::uint64_t requests = 0;    ///< announced in full
    std::uint64_t cached = 0;      ///< announced by a bit
    std::uint64_t messages = 0;    ///< control messages that this rank sent for negotiation
    std::uint64_t agreements = 0;  ///< lists of responses that this rank has taken
  };

  Controller(const Communicator& communicator, ControlPlane& control_plane, const Config& config,
             const Log& log);

  /// Takes over an entry; it waits for announce(). The shape of a join is the number of ordered
  /// calls that this rank has made.
  void add(EntryPtr entry);

  /// Announces the entries that wait, if they are many, or have waited for the batch window, or
  /// `flush` says that somebody waits for them; true if it did.
  Result<bool> announce(Clock::time_point now, bool flush);
  /// When announce() will be due, if entries wait.
  std::optional<Clock::time_point> next_announcement() const;

  /// A negotiation message from `peer`.
  Status on_message(int peer, const Message& message);

  /// Rank 0: tells everybody what all are ready for; true if there was anything.
  Result<bool> decide();

  /// Takes the next list that was agreed on; false if there is none. Lists are the same, one by
  /// one, on every rank: what a rank makes of a list must not depend on how many have arrived.
  bool take_agreed(std::vector<Agreed>& agreed);

  /// Reports stalled tensors and expires them (rank 0). On other ranks kTimeout when rank 0, which
  /// would expire them, has decided on nothing for longer while something waits for it here. It
  /// decides on nothing new while agreed operations are under way: `is_busy`, which must end by
  /// itself. To be called often.
  Status check_timeouts(Clock::time_point now, bool is_busy);

  /// Of the ranks that have joined, the one that has made the fewest ordered calls, of which it
  /// makes no more until all have joined; nothing if none has, as far as this rank has heard.
  const std::optional<JoinedRank>& joined() const { return joined_; }

  /// Removes and returns every entry that is not agreed on.
  std::vector<EntryPtr> take_pending();
  bool has_pending() const { return !waiting_.empty(); }
  /// "tensor 'fc1.weight' and 3 more". Precondition: has_pending().
  std::string describe_pending() const;
  const Counters& counters() const { return counters_; }

 private:
  bool is_coordinator() const { return communicator_.rank() == 0; }
  /// Then it fails on all ranks, instead of failing the message that tells them.
  void fail_if_too_long(Response& response) const;
  Status expire(Clock::time_point now);
  Status check_coordinator(Clock::time_point now, bool is_busy);
  Status send_ready(const SlotsBySteps& slots, const std::vector<Request>& requests);
  Status take_ready(int rank, const SlotsBySteps& slots, Clock::time_point now);
  Status take_ready(int rank, std::uint32_t slot, std::uint64_t step, Clock::time_point now);
  Status take_ready_in_full(int rank, std::uint32_t slot, std::uint64_t step,
                            Clock::time_point now);
  Status hand_to_coordinator(std::uint32_t slot);
  Status take_requests(int rank, const std::vector<Request>& requests, Clock::time_point now);
  Status note_join(int rank, const Signature& join);
  void take_slots(const SlotSet& slots);
  Status take_responses(std::vector<Response> responses);
  static EntryPtr lent(const Response& response);

  const Communicator& communicator_;
  ControlPlane& control_plane_;
  const Config& config_;
  const Log& log_;
  ResponseCache cache_;
  Coordinator coordinator_;
  ReadySlots ready_;  ///< rank 0
  WaitingEntries waiting_;
  std::optional<JoinedRank> joined_;
  std::uint64_t unannounced_bytes_ = 0;
  bool flush_ = false;
  std::deque<std::vector<Agreed>> agreed_;
  Counters counters_;
  std::uint64_t agreements_seen_ = 0;              ///< by check_coordinator()
  std::optional<Clock::time_point> silent_since_;  ///< rank 0, if it owes a decision
};

}  // namespace kolo
