#include "runtime/base/check.h"
#include "runtime/base/in_call.h"

#include <kolo/work.h>

namespace kolo {

Status Work::wait(std::chrono::steady_clock::time_point until) {
  const InCall in_call;
  if (!done()) {
    const auto driver = driver_.lock();
    if (driver) driver->drive(*this, until);
  }
  if (done()) return status_;  // final once done() is true
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return done_.load(std::memory_order_relaxed); };
  if (until == std::chrono::steady_clock::time_point::max()) {
    changed_.wait(lock, is_done);
  } else if (!changed_.wait_until(lock, until, is_done)) {
    return KOLO_ERROR(kTimeout, "the operation is not done yet; it goes on");
  }
  return status_;
}

void Work::on_done(std::function<void()> told) {
  const InCall in_call;
  {
    const std::lock_guard lock(mutex_);
    if (!done_.load(std::memory_order_relaxed)) {
      told_.push_back(std::move(told));
      return;
    }
  }
  told();
}

void Work::complete(Status status, Outcome outcome) {
  std::vector<std::function<void()>> told;
  {
    const std::lock_guard lock(mutex_);
    KOLO_CHECK(!done_.load(std::memory_order_relaxed));
    status_ = std::move(status);
    outcome_ = std::move(outcome);
    told = std::move(told_);
    done_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
  for (const auto& tell : told) tell();
}

}  // namespace kolo
