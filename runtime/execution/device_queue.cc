#include "runtime/execution/device_queue.h"

#include "runtime/base/check.h"

#include <utility>

namespace kolo {

void DeviceQueue::start(DeviceStream* stream) {
  stream_ = stream;
  marks_.clear();
  held_.clear();
  unmarked_ = 0;
}

void DeviceQueue::hold(StepId id) {
  held_.push_back(id);
  ++unmarked_;
}

Status DeviceQueue::mark() {
  if (unmarked_ == 0) return {};
  KOLO_ASSIGN(auto event, stream_->record());
  marks_.push_back({std::move(event), std::exchange(unmarked_, 0)});
  step_.mark();
  return {};
}

Result<bool> DeviceQueue::poll(const std::function<void(StepId)>& release) {
  bool released = false;
  while (!marks_.empty()) {
    KOLO_ASSIGN(const bool is_reached, marks_.front().event->is_done());
    if (!is_reached) break;
    for (; marks_.front().steps > 0; --marks_.front().steps) {
      release(held_.front());
      held_.pop_front();
    }
    marks_.pop_front();
    released = true;
  }
  if (released && marks_.empty()) step_.reach_mark();
  return released;
}

}  // namespace kolo
