// Cycle: the loop over the stages. step() is one pass; cycle.cc lists the stages in order. The
// holder of the progress token calls it: the background thread, or a thread that waits for a Work.
#pragma once

#include "runtime/base/log.h"
#include "runtime/cycle/cycle_trace.h"
#include "runtime/cycle/group.h"
#include "runtime/health/abort_message.h"
#include "runtime/health/heartbeat.h"
#include "runtime/health/process_watch.h"

#include <kolo/config.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// In larger worlds, a rank that ends opens no connections to announce it. Otherwise all ranks
/// together would open one per pair of ranks. That takes long, and UCX 1.13 can terminate processes
/// over it.
inline constexpr int kFewRanks = 64;

class Cycle final : public TransportListener {
 public:
  using Clock = std::chrono::steady_clock;

  Cycle(GroupRegistry& groups, Transport& transport, const Device& device, HostWindow& window,
        DeviceWindow& devices, const LinkCosts& links, const Config& config, const Log& log,
        Timeline& timeline);

  /// One pass over all stages; never blocks. True if anything moved.
  bool step();

  /// Begins a small blocking in-order call through the exchange and sets its number. False if the
  /// call must go through the queue.
  bool begin_exchange(Group& group, Exchange::Request& request);
  /// Ends an exchange that is done without an Operation.
  void end_exchange(Group& group, const Exchange::Request& request);

  /// Operations are running, agreed or being negotiated: a short spin pays.
  bool has_work() const;
  /// Sends or receives are not matched yet.
  bool has_messages() const;
  /// Transfers may be under way: block with a short bound.
  bool is_communicating() const;
  /// An operation waits for an accelerator, which wakes nobody: block with a shorter bound.
  bool is_computing() const;
  /// Everything has failed, and step() does nothing any more.
  bool is_over() const { return world_.abort().raised(); }
  /// Latest time to call step() if nothing arrives.
  Clock::time_point next_timer() const;
  /// Descriptor of the watched processes; negative if there are none. If readable: call step().
  int watched_descriptor() const { return watch_.descriptor(); }
  /// watched_descriptor() was readable: the next step checks the processes.
  void check_processes() { next_check_ = Clock::time_point::min(); }

  /// Before the first step: fails if a rank was lost meanwhile.
  Status losses();
  /// Before the first step, in a large world: opens a link to rank 0, so that rank 0 hears when
  /// this rank ends.
  void open_link();

  /// Fails everything, on this rank and on the other ranks.
  void abort(Error error);

  /// Ends this rank's part: operations under way fail with kShutdown, and the other ranks are told.
  void shut_down();

  void on_message(int peer, std::span<const std::byte> message) override;
  void on_peer_failed(int peer, const Error& error) override;

 private:
  struct Failure {
    Error error;
    int culprit = Abort::kNoCulprit;
    bool heard = false;  ///< another rank reported it
  };

  /// A message for a group that this rank has not added yet.
  struct EarlyMessage {
    std::uint32_t group;
    int peer;
    std::string bytes;
  };

  // The stages, in the order that a gradient passes them, each for every process set.
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
  void complete_works(Group& group, Operation& operation);
  void check_health(Group& group, Clock::time_point now, bool check_time);
  void find_absent(Group& group);
  bool tell_of_slots(Group& group);
  void check_slots(Group& group, Clock::time_point now);
  void check_held_by_departure(Group& group);
  void check_held(Group& group, Clock::time_point now);
  void check_calls(Group& group, Clock::time_point now);
  /// Fails if this rank has made an ordered call that a joined rank will not make.
  void check_joined(Group& group);
  /// Fails if a message was never received although its call is over here.
  void check_messages(Group& group);
  void ask_about(Group& group, const Operation& operation, Clock::time_point now);
  Status on_call_message(Group& group, int rank, const Message& message);
  /// Fails because of a message that was not received, although its call is over here.
  void refuse_message(Group& group, int peer, const Tag& tag);
  /// `own` and `others`: OrderedCall::fingerprint of this rank and of the group's `rank`.
  Error clash(const Group& group, std::uint64_t own, int rank, std::uint64_t others) const;
  void on_group_message(Group& group, int peer, const Message& message);
  /// Rank `peer` of the world has left.
  void on_departure(int peer);
  void drain_control_messages();
  /// Waits briefly for another rank's failure if the one noted here is kPeerLost or kAborted
  /// without a culprit.
  void hear_reason();

  void note(Status status);
  void note_failure(Failure failure);
  void fail();
  void complete_all(const Error& error);
  /// Sends each remaining rank except the culprit its own of `payloads`, which are by rank. Returns
  /// the first failure.
  Status tell_others(Group& group, MessageKind kind, const std::vector<std::string>& payloads,
                     int culprit);
  /// As tell_others(), but only to ranks of the world for which `hear` is true.
  Status tell(Group& group, MessageKind kind, const std::vector<std::string>& payloads, int culprit,
              const std::function<bool(int rank)>& hear);
  /// Whether this rank and that rank of the world tell each other when they end.
  bool concerned(int rank) const;
  /// Makes that rank concerned() from now on.
  void open_link(int rank);
  /// Before shutdown: waits for the group's operations in NCCL. False if they hang.
  bool drain_nccl(Group& group);
  /// Takes all entries of a group, in whatever stage they are.
  std::vector<EntryPtr> take_entries(Group& group, const Error& error);
  void finish(Group& group, const Entry& entry, Status status, Outcome outcome);
  void complete_entry(Group& group, const Entry& entry, Status status, Outcome outcome);
  std::unique_ptr<Operation> take_idle_operation(Group& group);
  Status start_operation(Group& group, Operation& operation, PlannedOperation plan);

  /// Whether the process set's slots are settled, and a slot of the device is free if needed.
  bool may_begin(const Group& group, const PlannedOperation& plan) const;

  GroupRegistry& groups_;
  Communicator& world_;
  Transport& transport_;
  const Device& device_;
  HostWindow& window_;
  DeviceWindow& devices_;
  const Config& config_;
  const Log& log_;
  CycleTrace trace_;

  ScheduleCache schedules_;
  Arena arena_;
  const RankServices services_;
  const LinkCosts& links_;
  std::optional<Policy> policy_;  ///< set once the links are known
  ProcessWatch watch_;
  Heartbeat heartbeat_;

  std::vector<EntryPtr> drained_;
  std::vector<Agreed> agreed_;
  std::vector<EarlyMessage> early_messages_;
  std::uint64_t lists_planned_ = 0;  ///< response lists of the world
  std::optional<Failure> failure_;
  Clock::time_point next_check_;
  std::optional<Clock::time_point> looked_at_;                   // the latest timed check
  Clock::time_point deadlines_from_ = Clock::time_point::min();  // no deadline expires before
};

}  // namespace kolo
