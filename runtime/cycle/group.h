// Group: one process set at work: its communicator, its queues of submissions, its negotiation and
// its operations. Its stages are called by Cycle, in the order of their list there. The world is
// group 0; other sets are added and removed at run time. Half of its methods are accessors of its
// parts. Token holder only, except where a method says otherwise.
#pragma once

#include "runtime/base/log.h"
#include "runtime/base/waker.h"
#include "runtime/communicator/control_plane.h"
#include "runtime/cycle/call_audit.h"
#include "runtime/cycle/context.h"
#include "runtime/cycle/operation_queue.h"
#include "runtime/exchange/exchange.h"
#include "runtime/health/departures.h"
#include "runtime/memory/partition_slots.h"
#include "runtime/nccl/nccl_communicators.h"
#include "runtime/negotiation/controller.h"
#include "runtime/negotiation/point_to_point.h"
#include "runtime/submission/ordered_queue.h"
#include "runtime/submission/tensor_table.h"

#include <kolo/config.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

class Group {
 public:
  using Clock = std::chrono::steady_clock;

  /// `partition`: of the window (HostWindow::kPartitions). open() opens its control segments and
  /// slots after the window is open.
  Group(Communicator members, int partition, const RankServices& rank, Waker& waker,
        const NcclSite& nccl, const Config& config, const Log& log);

  // --- The stages; each returns true if anything moved.
  bool drain(CycleContext& context);
  bool announce(CycleContext& context, Clock::time_point now);
  bool decide(CycleContext& context, Clock::time_point now);
  bool plan(CycleContext& context);
  bool start(CycleContext& context);
  bool advance() { return operations_.advance(); }
  bool complete(CycleContext& context);

  // --- A blocking in-order call in its caller's thread.
  /// Begins the call through the exchange and sets its number. False if it must go through the
  /// queue.
  bool begin_exchange(CycleContext& context, Exchange::Request& request);
  /// Ends an exchange that is done without an Operation.
  void end_exchange(CycleContext& context, const Exchange::Request& request);

  // --- What happens to it.
  /// Opens the set's partition of the window. Precondition: is_member().
  void open(const HostWindow& window, ExchangeUse use);
  /// Exchange::set_limits(), also for operations.
  void set_limits(const ExchangeLimits& limits) {
    exchange_.set_limits(limits);
    operations_.forget_resources();
  }
  /// A control message of the set's `rank`, except beats, shutdown notices and aborts.
  Status on_message(int rank, const Message& message);
  /// The rank of the world has left.
  void on_departure(int rank);
  /// The set was removed: refuses calls, and completes what does not run yet.
  void close_removed(CycleContext& context);
  /// Refuses further submissions with this error.
  void close(const Error& error);
  /// Ends this set alone: all its calls fail with `error`, and so do later ones. Operations that
  /// run are not driven any more. They keep their memory, which peers and the network may still
  /// touch, until the world ends.
  void abort(CycleContext& context, const Error& error);
  /// The stages and checks do nothing more for it: abort() follows once no stage works on it.
  void expect_abort() { expects_abort_ = true; }
  /// The driving thread calls both around a block: peers that publish in control segments meanwhile
  /// send a doorbell message. False if there is something to do.
  bool fall_asleep() { return exchange_.fall_asleep() && controller_.fall_asleep(); }
  void wake_up() {
    exchange_.wake_up();
    controller_.wake_up();
  }
  /// Any thread: whether abort() was called.
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  /// Takes all entries, in whatever stage they are.
  std::vector<EntryPtr> take_entries(CycleContext& context, const Error& error);
  /// Completes an entry that no operation runs any more.
  void complete_entry(const Entry& entry, Status status, Outcome outcome);
  /// Before shutdown: waits for operations in NCCL. False if they hang.
  bool drain_nccl(Clock::duration longest);

  // --- What is known of it.
  bool is_member() const { return communicator_.rank() >= 0; }
  /// Whether the stages run for it.
  bool is_active() const { return is_member() && !aborted() && !expects_abort_; }
  bool has_work() const {
    return !aborted() &&
           (!operations_.empty() || controller_.has_pending() || slots_.has_message());
  }
  /// Number of in-order calls that have their number.
  std::uint64_t calls() const { return operations_.numbered(SubmissionMode::kInOrder); }
  /// Progress for the shutdown notice to the communicator's rank `reader`.
  Progress progress(int reader) const;

  Communicator& communicator() { return communicator_; }
  const Communicator& communicator() const { return communicator_; }
  TensorTable& table() { return table_; }       ///< any thread
  OrderedQueue& ordered() { return ordered_; }  ///< also sends and receives; any thread
  ControlPlane& control_plane() { return control_plane_; }
  NcclCommunicators& nccl() { return nccl_; }
  Controller& controller() { return controller_; }
  const Controller& controller() const { return controller_; }
  PointToPoint& point_to_point() { return point_to_point_; }
  const PointToPoint& point_to_point() const { return point_to_point_; }
  Departures& departures() { return departures_; }
  const Departures& departures() const { return departures_; }
  PartitionSlots& slots() { return slots_; }
  const PartitionSlots& slots() const { return slots_; }
  Exchange& exchange() { return exchange_; }
  const Exchange& exchange() const { return exchange_; }
  const OperationQueue& operations() const { return operations_; }
  const GroupServices& services() const { return services_; }
  /// OperationQueue::held_since().
  std::optional<Clock::time_point> held_since(Clock::time_point now) {
    return operations_.held_since(now);
  }
  CallAudit& audit() { return audit_; }
  const RecentCalls& recent_calls() const { return recent_calls_; }
  /// The Work of every call that its caller's thread has done without an Operation. Any thread.
  const std::shared_ptr<Work>& done_call() const { return done_call_; }

  /// Joins that have ended on all ranks. Any thread.
  std::uint64_t joins() const { return joins_.load(); }

  /// Whether the set exists, and for how long.
  struct Lifetime {
    /// Threads in a blocking in-order call; the group outlives them. Any thread.
    std::atomic<int> callers = 0;
    /// This rank has asked to remove the set, and makes no more calls on it. Guarded by the
    /// registry.
    bool retiring = false;
    bool removed = false;
    /// Number of the world's response list that added the set; nothing for one from the start.
    std::optional<std::uint64_t> added_in;
  };
  Lifetime lifetime;

 private:
  /// A join that all ranks agreed on. Its Work completes when all earlier agreed operations are
  /// done here, including those to which this rank contributes zeros: its caller may end this rank
  /// at once.
  struct Joined {
    EntryPtr entry;
    Outcome outcome;
    std::uint64_t after;  ///< negotiated operations below this number must be done first
  };

  void open_links_to_senders(CycleContext& context, const Entry& receive);
  void plan_ordered(CycleContext& context, EntryPtr entry);
  /// A call that failed at once.
  void refuse(CycleContext& context, EntryPtr entry);
  void plan_list(CycleContext& context, std::vector<Agreed>& agreed);
  void conclude(CycleContext& context, Agreed& agreed);
  void start_message(CycleContext& context, PointToPoint::Settled settled);
  void complete_works(CycleContext& context, Operation& operation);
  /// Takes the entries that no operation has.
  std::vector<EntryPtr> take_waiting();
  void end_join(CycleContext& context);
  void finish(CycleContext& context, const Entry& entry, Status status, Outcome outcome);
  bool tell_of_slots(CycleContext& context);
  /// Whether all ranks must meet before any sends in this in-order call. Needed now and then where
  /// messages go one way, so that a rank that is ahead does not fill the memory of a late one.
  /// Counts the call. The same on all ranks, because they make the same calls.
  bool meets_first(const PlannedOperation& operation);

  Communicator communicator_;
  TensorTable table_;
  OrderedQueue ordered_;
  ControlPlane control_plane_;
  NcclCommunicators nccl_;
  Controller controller_;
  PointToPoint point_to_point_;
  Departures departures_;
  PartitionSlots slots_;
  CallHistory history_;  ///< all in-order calls that have their number
  RecentCalls recent_calls_;
  const std::shared_ptr<Work> done_call_ = std::make_shared<Work>();
  Exchange exchange_;
  const GroupServices services_;
  OperationQueue operations_;
  CallAudit audit_;
  bool flush_ = false;
  std::atomic<bool> aborted_ = false;
  bool expects_abort_ = false;
  std::optional<Joined> joined_;
  std::atomic<std::uint64_t> joins_ = 0;
  std::uint64_t bytes_ahead_ = 0;  ///< bytes possibly sent since ranks met; see meets_first()
};

}  // namespace kolo
