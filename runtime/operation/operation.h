// Operation: one running collective or message over one or several entries: the plan, the route
// and the carrier that moves its data. Operations are reused from a pool, so that a steady step
// allocates nothing. Token holder only.
#pragma once

#include "runtime/operation/carrier.h"
#include "runtime/operation/planned_operation.h"
#include "runtime/operation/services.h"
#include "runtime/planning/route.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kolo {

class Operation {
 public:
  using Clock = std::chrono::steady_clock;

  /// Both arguments outlive the operation.
  Operation(const RankServices& rank, const GroupServices& group) : rank_(rank), group_(group) {}
  ~Operation();

  /// Takes the route that `resources` and `policy` give; both outlive the operation. After a
  /// failure (kOutOfMemory, kUnsupported), finish() still returns the entries. Precondition: the
  /// process set's slots are settled, except for messages.
  Status start(PlannedOperation plan, const Resources& resources, const Policy& policy);

  bool advance();
  bool done() const { return !failure_.ok() || carrier_->done(); }
  const Status& status() const { return failure_.ok() ? carrier_->status() : failure_; }

  /// done(), or all work is on the device's streams: the Works may complete, but the memory is
  /// still in use.
  bool enqueued() const { return !failure_.ok() || carrier_->enqueued(); }
  /// Waits for the device, which wakes nobody.
  bool waits_for_device() const { return carrier_->waits_for_device(); }
  /// Event after the last work on the device; null for host memory. Precondition: enqueued().
  std::shared_ptr<DeviceEvent> device_event() const { return carrier_->device_event(); }

  SubmissionMode mode() const { return plan_.mode; }
  std::uint64_t sequence() const { return plan_.sequence; }
  /// Rank of the world at the other end of a message.
  int message_peer() const { return plan_.signature().root; }
  Clock::time_point started_at() const { return started_at_; }
  const PlannedOperation& plan() const { return plan_; }
  /// Fingerprint of an in-order call, else 0.
  std::uint64_t call() const { return call_of(plan_, group_.communicator); }
  /// Its Works are complete; the entries drop theirs.
  void drop_works();
  bool works_completed() const { return works_completed_; }
  std::string_view algorithm() const { return carrier_->algorithm(); }
  StepTrace::Costs costs() const { return carrier_->costs(); }

  /// Gives the entries back and frees the memory. Precondition: done(), or start() failed; after a
  /// failure, no transfer touches the memory any more.
  PlannedOperation finish();

  /// "allreduce 'fc1.weight' and 12 more".
  std::string describe() const { return plan_.describe(group_.communicator); }
  /// State for reports of operations that do not end.
  std::string dump_state() const { return carrier_->describe(); }

 private:
  Status take_route(bool may_exchange);
  /// The carrier of that kind, made when it is first needed.
  Carrier& carrier_of(CarrierKind kind);
  /// True if the caller has begun this call as a two-rank exchange; its carrier has then taken it
  /// over.
  bool resumes_two_rank();
  /// Whether the exchange has left the call to a schedule.
  bool is_declined() const;

  const RankServices& rank_;
  const GroupServices& group_;
  std::array<std::unique_ptr<Carrier>, kCarrierKinds> carriers_;  ///< by CarrierKind
  PlannedOperation plan_;
  const Resources* resources_ = nullptr;
  const Policy* policy_ = nullptr;
  Route route_;
  /// What route_ was chosen for: most calls of a step come again.
  struct Routed {
    CallShape call;
    std::uint64_t resources = 0;
    std::uint64_t policy = 0;
    friend bool operator==(const Routed&, const Routed&) = default;
  } routed_;
  Carrier* carrier_ = nullptr;
  Status failure_;  ///< failure of start(), at once or after the exchange has declined
  bool works_completed_ = false;
  Clock::time_point started_at_;
};

}  // namespace kolo
