// Cycle: the loop over the stages. step() is one pass; runtime/cycle.cc reads as their list.
// Whoever holds the progress token calls it: the background thread, or a thread that waits.
#pragma once

#include "runtime/base/log.h"
#include "runtime/cycle_trace.h"
#include "runtime/group.h"
#include "runtime/health/abort_notice.h"
#include "runtime/health/heartbeat.h"
#include "runtime/health/process_watch.h"
#include "runtime/tuning/cost_switch.h"
#include "runtime/tuning/link_refresh.h"

#include <kolo/config.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// In larger worlds a rank that ends opens no connections to say so: all of them at once would make
/// as many as there are pairs of ranks, which takes long, and UCX 1.13 ends processes over it.
inline constexpr int kFewRanks = 64;

class Cycle final : public TransportListener {
 public:
  using Clock = std::chrono::steady_clock;

  Cycle(GroupRegistry& groups, Transport& transport, const Device& device, HostWindow& window,
        DeviceWindow& devices, const LinkCosts& links, const Config& config, const Log& log,
        Timeline& timeline);

  /// One pass over all stages, never blocking; true if anything moved.
  bool step();

  /// Begins a small blocking call of the ordered door, whose number it sets. False if it must go
  /// the long way, through the queue.
  bool begin_one_shot(Group& group, OneShot::Request& request);
  /// It is done, without an Operation.
  void end_one_shot(Group& group, const OneShot::Request& request);

  /// Operations are running, agreed or being negotiated: worth a short spin.
  bool has_work() const;
  /// Sends and receives are not settled.
  bool has_messages() const;
  /// Transfers may be under way: poll with a tight bound.
  bool is_communicating() const;
  /// Work of an accelerator is waited for, which wakes nobody: poll with a tighter one.
  bool is_computing() const;
  /// All has failed, and step() does nothing any more.
  bool is_over() const { return world_.abort().raised(); }
  /// When step() must be called at the latest although nothing arrives.
  Clock::time_point next_timer() const;
  /// Of the processes to watch, below zero if there are none; readable: call step().
  int watched_descriptor() const { return watch_.descriptor(); }
  /// It was readable: the next step looks at the processes.
  void check_processes() { next_check_ = Clock::time_point::min(); }

  /// What links cost as running operations have shown it; rank 0 only, nothing without corrections.
  std::optional<LinkCosts> corrected_costs() const;
  /// What links cost as all ranks have agreed since the start; nothing if they have not.
  std::optional<LinkCosts> agreed_costs() const;

  /// Before the first step: whether a rank was lost meanwhile.
  Status losses();
  /// Before the first step, in a large world: rank 0 has a link to this one from now on, while both
  /// are there, and so hears of its end.
  void greet();

  /// Fails everything, here and on the other ranks.
  void abort(Error error);

  /// Ends this rank's part: what is under way fails with kShutdown, the others are told.
  void shut_down();

  void on_message(int peer, std::span<const std::byte> message) override;
  void on_peer_failed(int peer, const Error& error) override;

 private:
  struct Failure {
    Error error;
    int culprit = Abort::kNoCulprit;
    bool heard = false;  ///< from another rank
  };

  /// A message for a group that this rank has not added yet.
  struct EarlyMessage {
    std::uint32_t group;
    int peer;
    std::string bytes;
  };

  // The stages, in the order of a gradient's way, each for every process set.
  bool drain();
  bool announce();
  bool decide();
  bool plan();
  bool start();
  bool advance();
  bool complete();
  void check_health();
  void check_heartbeats(Clock::time_point now);
  template <class Stage>
  bool for_each_group(Stage&& stage);

  bool drain(Group& group);
  void refuse(Group& group, EntryPtr entry);
  void plan_list(Group& group);
  void conclude(Group& group, Agreed& agreed);
  void end_join(Group& group);
  Result<std::int64_t> change_groups(const Signature& signature);
  void begin(Group& group, PointToPoint::Settled settled);
  bool start(Group& group);
  bool complete(Group& group);
  void hand_out(Group& group, Operation& operation);
  void check_health(Group& group, Clock::time_point now, bool check_time);
  void find_absent(Group& group);
  bool tell_of_slots(Group& group);
  void check_slots(Group& group, Clock::time_point now);
  void check_held_by_departure(Group& group);
  void check_held(Group& group, Clock::time_point now);
  void check_calls(Group& group, Clock::time_point now);
  /// Whether this rank has made an ordered call that one which has joined does not make.
  void check_joined(Group& group);
  /// Whether all have met a receive that belong to calls that are over.
  void check_messages(Group& group);
  void ask_about(Group& group, const Operation& operation, Clock::time_point now);
  Status on_call_message(Group& group, int rank, const Message& message);
  /// It has met no receive, and the call that it belongs to is over here.
  void refuse_message(Group& group, int peer, const Tag& tag);
  /// Of OrderedCall::what, and the group's `rank`.
  Error clash(const Group& group, std::uint64_t own, int rank, std::uint64_t others) const;
  void on_group_message(Group& group, int peer, const Message& message);
  /// The world's `peer` has left.
  void on_departure(int peer);
  void hear_last_words();
  /// Waits shortly for another rank's failure if a lost peer is all that is known of the own one.
  void hear_reason();

  void note(Status status);
  void note_failure(Failure failure);
  void fail();
  void complete_all(const Error& error);
  /// To every rank that is still there, but for the culprit, its own of the payloads by rank; the
  /// first failure is returned.
  Status tell_others(Group& group, MessageKind kind, const std::vector<std::string>& payloads,
                     int culprit);
  /// The same, to ranks of the world that `hear` has.
  Status tell(Group& group, MessageKind kind, const std::vector<std::string>& payloads, int culprit,
              const std::function<bool(int rank)>& hear);
  /// Whether that rank of the world is told of this one's end, and tells this one of its own.
  bool concerned(int rank) const;
  /// It is from now on.
  void greet(int rank);
  /// Before shutdown: whether nothing hangs in the group's NCCL communicators.
  bool drain_nccl(Group& group);
  /// Takes all entries of a group, wherever they are.
  std::vector<EntryPtr> take_entries(Group& group, const Error& error);
  void finish(Group& group, const Entry& entry, Status status, Outcome outcome);
  void hand_back(Group& group, const Entry& entry, Status status, Outcome outcome);
  std::unique_ptr<Operation> take_idle_operation(Group& group);

  /// Of the world: which costs of links count for which operation.
  CostSwitch& cost_switch();
  /// By what an all-reduce of that group is chosen: null for what its communicator started with.
  const AllreducePolicy* policy_of(const Group& group, const PlannedOperation& plan);
  /// All ranks have the costs for it, and it is known who has memory for it; a slot is free.
  bool may_begin(Group& group, const PlannedOperation& plan);
  /// Rank 0: an operation has ended; what links cost may be corrected.
  void note_time(Group& group, const Operation& operation);
  Status on_cost_message(Group& group, int rank, const Message& message);
  void tell_costs(Group& group, MessageKind kind, const std::string& payload);
  /// Rank 0: tells the others once all have answered; true if so.
  bool settle_costs();
  /// The world's `rank` has left.
  void leave_costs(Group& group, int rank);

  GroupRegistry& groups_;
  Communicator& world_;
  Transport& transport_;
  const Device& device_;
  HostWindow& window_;
  DeviceWindow& devices_;
  const LinkCosts& links_;
  const Config& config_;
  const Log& log_;
  CycleTrace trace_;

  ScheduleCache schedules_;
  Arena arena_;
  ProcessWatch watch_;
  Heartbeat heartbeat_;

  std::vector<EntryPtr> drained_;
  std::vector<Agreed> agreed_;
  std::vector<EarlyMessage> early_messages_;
  std::optional<CostSwitch> cost_switch_;
  std::optional<LinkRefresh> link_refresh_;  ///< rank 0, where there is a choice by costs
  std::uint64_t lists_planned_ = 0;          ///< of the world
  std::optional<Failure> failure_;
  Clock::time_point next_check_;
  std::optional<Clock::time_point> looked_at_;                   // the last such check
  Clock::time_point deadlines_from_ = Clock::time_point::min();  // until then none has passed
};

}  // namespace kolo
