// Controller: makes every rank agree on the same ordered list of responses (Horovod's controller,
// without its cycle). Each rank tells the coordinator, rank 0, what it is ready for: a bit for a
// cached tensor, a request for a new one. Rank 0 tells all ranks what to run. Where ranks are many,
// messages pass through ranks between (ControlRelay). Ranks of one host need no messages once their
// steps repeat (LockedPlan). Progress token holder only. Both sides of the protocol share the
// entries and the cache, hence its many methods.
#pragma once

#include "runtime/base/log.h"
#include "runtime/communicator/control_plane.h"
#include "runtime/negotiation/control_relay.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/locked_plan.h"
#include "runtime/negotiation/ready_slots.h"
#include "runtime/negotiation/repeated_steps.h"
#include "runtime/negotiation/response_cache.h"
#include "runtime/negotiation/slot_set.h"
#include "runtime/negotiation/waiting_entries.h"
#include "runtime/negotiation/wire.h"
#include "runtime/observe/flight_recorder.h"

#include <kolo/config.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kolo {

/// A response together with this rank's entry. If this rank has joined, or the call was not its to
/// announce, the entry has only the name and signature, and no Work.
struct Agreed {
  std::shared_ptr<const Response> response;
  EntryPtr entry;
};

/// A rank of the communicator that has joined.
struct JoinedRank {
  std::int64_t rank = 0;
  std::int64_t calls = 0;  ///< in-order calls that this rank has made
};

class Controller final : private ControlRelay::Receiver {
 public:
  using Clock = std::chrono::steady_clock;

  struct Counters {
    std::uint64_t requests = 0;    ///< entries announced in full
    std::uint64_t cached = 0;      ///< entries announced by a bit
    std::uint64_t messages = 0;    ///< negotiation messages that this rank sent or passed on
    std::uint64_t agreements = 0;  ///< lists of responses that this rank has taken
    std::uint64_t planned = 0;     ///< those of a locked plan among them
  };

  /// `recorder`: what this rank announces and agrees on; null: nobody records it.
  Controller(const Communicator& communicator, ControlPlane& control_plane, const Config& config,
             const Log& log, FlightRecorder* recorder = nullptr);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  /// LockedPlan::open().
  void open(PlanNeighbours neighbours);

  /// Takes over an entry, which waits for announce(). The shape of a join is the number of in-order
  /// calls that this rank has made.
  void add(EntryPtr entry);

  /// Announces the waiting entries if they have enough bytes, if the batch window is over, or if
  /// `flush` says that a caller waits for them. Returns whether it announced them.
  Result<bool> announce(Clock::time_point now, bool flush);
  /// When announce() or pass_on() will be due; nothing if nothing waits for it.
  std::optional<Clock::time_point> next_announcement() const;

  /// Handles a negotiation message from `peer`.
  Status on_message(int peer, const Message& message);

  /// Takes what all ranks are ready for by a locked plan, and ends a plan that does not hold.
  /// Returns whether there was anything.
  Result<bool> follow_plan(Clock::time_point now);
  /// Before this rank shuts down: ends a plan in which others need this rank. Call it until it
  /// returns false.
  Result<bool> leave_plan(Clock::time_point now);
  /// Rank 0: tells all ranks what all are ready for. Returns whether there was anything.
  Result<bool> decide();
  /// A rank between: passes on what the ranks below it are ready for. Returns as decide().
  Result<bool> pass_on(Clock::time_point now) { return relay_.pass_on(now); }

  /// Takes the next agreed list; false if there is none. All ranks get the same lists in the same
  /// order. What a rank does with a list must not depend on how many lists have arrived.
  bool take_agreed(std::vector<Agreed>& agreed);

  /// Rank 0: reports stalled tensors and expires them. Other ranks: kTimeout if rank 0 has decided
  /// nothing while an entry waits here, for longer than rank 0 takes to expire it. `is_busy` says
  /// that agreed operations are running; rank 0 decides nothing new meanwhile, and they must end by
  /// themselves. Call this often.
  Status check_timeouts(Clock::time_point now, bool is_busy);

  /// The joined rank with the fewest in-order calls. It makes no more of them until all ranks have
  /// joined. Nothing if this rank knows of no joined rank.
  const std::optional<JoinedRank>& joined() const { return joined_; }

  /// See LockedPlan.
  bool fall_asleep() { return plan_.fall_asleep(); }
  void wake_up() { plan_.wake_up(); }

  /// Removes and returns every entry that take_agreed() has not returned.
  std::vector<EntryPtr> take_pending();
  bool has_pending() const { return !waiting_.empty(); }
  /// What waits for this rank of the communicator: "tensor 'fc1.weight' and 3 more"; empty if
  /// nothing does. A call by some ranks alone waits for these and for rank 0, which decides.
  std::string describe_waiting_for(int rank) const { return waiting_.describe_calls_of(rank); }
  /// Takes the removals of process sets, by their ranks alone, that wait for this rank.
  std::vector<EntryPtr> take_removals_that_wait_for(int rank) {
    return waiting_.take_removals_of(rank);
  }
  Counters counters() const;

 private:
  bool is_coordinator() const { return communicator_.rank() == 0; }
  bool records() const { return recorder_ != nullptr && recorder_->on(); }
  /// Records the names of the cache's slots from `first` on.
  void record_names(std::uint32_t first, std::uint32_t end);
  std::optional<Clock::time_point> next_batch() const;
  bool is_due(Clock::time_point now, bool flush) const;
  /// The slot of an entry that a bit can announce.
  std::optional<std::uint32_t> slot_of(const Entry& entry) const;
  /// announce() while a plan is on.
  Result<bool> announce_by_plan(Clock::time_point now, bool flush);
  bool settle_plan();
  /// Rank 0: all ranks have agreed on these slots, which were the last list.
  Status note_steps(const SlotSet& slots);
  /// False if the lists are malformed.
  bool lock_plan(std::span<const std::byte> lists);
  /// Fails a response on all ranks if the message that carries it would be too long.
  void fail_if_too_long(Response& response) const;
  Status expire(Clock::time_point now);
  Status check_plan(Clock::time_point now) const;
  Status check_coordinator(Clock::time_point now, bool is_busy);
  Status take_ready(Places ranks, const SlotsBySteps& slots, Clock::time_point now) override;
  Status take_request(const Request& request, Clock::time_point now) override;
  bool takes_told() override;
  Result<bool> take_told(MessageKind kind, std::span<const std::byte> told) override;
  void set_joined(std::optional<JoinedRank> joined);
  Status take_ready(Places ranks, std::uint32_t slot, std::uint64_t step, Clock::time_point now);
  Status take_ready(int rank, std::uint32_t slot, std::uint64_t step, Clock::time_point now);
  Status take_ready_in_full(int rank, std::uint32_t slot, std::uint64_t step,
                            Clock::time_point now);
  Status hand_to_coordinator(std::uint32_t slot);
  Status note_join(int rank, const Signature& join);
  void take_slots(const SlotSet& slots);
  Status take_responses(std::vector<Response> responses);
  Status take_response(Response decided, std::vector<Agreed>& agreed);
  /// Records that the ranks agree on this rank's announcement.
  void record_agreed(const Entry& entry, std::optional<std::uint32_t> slot);
  /// Puts a response into the cache; `slot`: where its name is already.
  void remember(const Response& response, std::optional<std::uint32_t> slot);
  static EntryPtr unannounced_entry(const Response& response);

  const Communicator& communicator_;
  const Config& config_;
  const Log& log_;
  FlightRecorder* const recorder_;
  ControlRelay relay_;
  ResponseCache cache_;
  Coordinator coordinator_;
  ReadySlots ready_;  ///< rank 0 only
  WaitingEntries waiting_;
  LockedPlan plan_;
  RepeatedSteps steps_;  ///< rank 0 only
  std::optional<JoinedRank> joined_;
  std::uint64_t unannounced_bytes_ = 0;
  bool flush_ = false;
  std::deque<std::vector<Agreed>> agreed_;
  Counters counters_;
  std::uint64_t agreements_seen_ = 0;  ///< counters_.agreements at the last check_coordinator()
  std::optional<Clock::time_point> silent_since_;  ///< since when rank 0 owes this rank a decision
};

}  // namespace kolo
