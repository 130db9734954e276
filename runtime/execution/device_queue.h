// DeviceQueue: the part of a schedule that runs on one stream of a device, and the host's steps
// that wait for it. Part of the executor.
#pragma once

#include "runtime/collectives/schedule.h"
#include "runtime/device/accelerator.h"
#include "runtime/execution/device_step.h"

#include <kolo/error.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

namespace kolo {

class DeviceQueue {
 public:
  /// Starts without held steps. `stream` outlives the schedule; null: there is no device.
  void start(DeviceStream* stream);
  DeviceStream& stream() const { return *stream_; }

  Status enqueue(const Schedule& schedule, const Step& step, const MemoryBinding& binding) {
    return step_.enqueue(schedule, step, binding, *stream_);
  }
  /// The device does nothing more of what was enqueued.
  void end() { step_.end(); }

  /// Holds a step of the host until everything enqueued so far is done.
  void hold(StepId id);
  /// Records an event: when the device reaches it, all steps held since the last mark are released.
  Status mark();
  /// Releases the steps whose mark the device has reached; true if there were any.
  Result<bool> poll(const std::function<void(StepId)>& release);
  /// The oldest held step. Precondition: there is one, as after a failure of mark() or poll().
  StepId oldest() const { return held_.front(); }

 private:
  struct Mark {
    std::shared_ptr<DeviceEvent> event;
    std::size_t steps;  ///< number of steps in held_
  };

  DeviceStream* stream_ = nullptr;
  DeviceStep step_;
  std::deque<Mark> marks_;  ///< in order of the stream: when one is reached, so are those before it
  std::deque<StepId> held_;
  std::size_t unmarked_ = 0;  ///< steps at the end of held_ without a mark
};

}  // namespace kolo
