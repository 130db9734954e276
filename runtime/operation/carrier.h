// Carrier: what moves an operation's data. One implementation for each CarrierKind; an Operation
// takes the one that route() names. A carrier is reused for the next operation of its kind. It
// never blocks. Token holder only.
//
//   Idle --start()--> Running --advance()--> Enqueued --advance()--> Done --release()--> Idle
//
// On host memory, Enqueued and Done are one. On device memory, all work is on the device's streams
// when a carrier is Enqueued: the Works may complete then, and the memory is free when it is Done.
#pragma once

#include "runtime/device/accelerator.h"
#include "runtime/execution/step_trace.h"
#include "runtime/operation/planned_operation.h"
#include "runtime/planning/route.h"

#include <kolo/error.h>

#include <memory>
#include <string>
#include <string_view>

namespace kolo {

class Carrier {
 public:
  virtual ~Carrier() = default;

  /// Begins. `plan` stays in place until release(). After a failure, only release() may follow.
  /// Precondition: idle.
  virtual Status start(const Route& route, const PlannedOperation& plan) = 0;
  /// Does what can be done now; true if anything was done.
  virtual bool advance() = 0;
  /// Nothing of it runs any more; or it has failed, and a transfer that peers hold may never end.
  virtual bool done() const = 0;
  virtual const Status& status() const = 0;
  /// Gives borrowed memory back. Waits for the device if work is still enqueued there.
  virtual void release() = 0;

  /// Name of the algorithm: that of a schedule, "one_shot", "nccl", …
  virtual std::string_view algorithm() const = 0;
  /// State for reports of operations that do not end.
  virtual std::string describe() const = 0;
  /// Cost of its local steps, if there is a timeline.
  virtual StepTrace::Costs costs() const { return {}; }

  /// done(), or all work is on the device's streams.
  virtual bool enqueued() const { return done(); }
  /// Event after the last work on the device; null for host memory. Precondition: enqueued().
  virtual std::shared_ptr<DeviceEvent> device_event() const { return nullptr; }
  /// Waits for the device, which wakes nobody.
  virtual bool waits_for_device() const { return false; }
};

}  // namespace kolo
