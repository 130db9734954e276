// DeviceQueue: what one stream of a device does of a schedule, and the steps of the host that wait
// for it. A part of the executor.
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
  /// Nothing is held. `stream` outlives the schedule; null: there is none.
  void start(DeviceStream* stream);
  DeviceStream& stream() const { return *stream_; }

  Status hand_in(const Schedule& schedule, const Step& step, const MemoryBinding& binding) {
    return step_.hand_in(schedule, step, binding, *stream_);
  }
  /// The device does nothing more of what it was given.
  void end() { step_.end(); }

  /// A step of the host waits for all that was handed in so far.
  void hold(StepId id);
  /// What was held since the last mark is released when the device reaches this one.
  Status mark();
  /// Releases what the device has come to; true if there was any.
  Result<bool> poll(const std::function<void(StepId)>& release);
  /// Of those that are held. Precondition: there is one, as after a failure of mark() or poll().
  StepId oldest() const { return held_.front(); }

 private:
  struct Mark {
    std::shared_ptr<DeviceEvent> event;
    std::size_t steps;  ///< of held_
  };

  DeviceStream* stream_ = nullptr;
  DeviceStep step_;
  std::deque<Mark> marks_;  ///< in order of the stream: when one is reached, those before it are
  std::deque<StepId> held_;
  std::size_t unmarked_ = 0;  ///< of held_, at its end
};

}  // namespace kolo
