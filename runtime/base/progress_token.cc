#include "runtime/base/progress_token.h"

#include "runtime/base/check.h"

namespace kolo {

ProgressToken::Hold ProgressToken::take(bool background) {
  held_ = true;
  held_by_background_ = background;
  holder_ = std::this_thread::get_id();
  return Hold(*this);
}

std::optional<ProgressToken::Hold> ProgressToken::acquire_background() {
  std::unique_lock lock(mutex_);
  // A quiet release wakes nobody, hence the bound.
  while (!closed_ && (held_ || wanted_ != 0)) changed_.wait_for(lock, kPatience);
  if (closed_) return std::nullopt;
  return take(true);
}

std::optional<ProgressToken::Hold> ProgressToken::acquire_for_waiter(
    std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  if (closed_ || (held_ && !held_by_background_)) return std::nullopt;
  ++wanted_;
  const auto settled = [&] { return closed_ || !held_ || !held_by_background_; };
  if (until == std::chrono::steady_clock::time_point::max()) {
    changed_.wait(lock, settled);
  } else {
    changed_.wait_until(lock, until, settled);
  }
  --wanted_;
  if (closed_ || held_) {
    changed_.notify_all();
    return std::nullopt;
  }
  return take(false);
}

std::optional<ProgressToken::Hold> ProgressToken::acquire() {
  std::unique_lock lock(mutex_);
  ++wanted_;
  changed_.wait(lock, [&] { return closed_ || !held_; });
  --wanted_;
  if (closed_) return std::nullopt;
  return take(false);
}

void ProgressToken::close() {
  {
    const std::lock_guard lock(mutex_);
    KOLO_CHECK(held_ && holder_ == std::this_thread::get_id());
    closed_ = true;
  }
  changed_.notify_all();
}

void ProgressToken::assert_held() const {
  const std::lock_guard lock(mutex_);
  KOLO_CHECK(held_ && holder_ == std::this_thread::get_id());
}

void ProgressToken::release(bool quietly) {
  {
    const std::lock_guard lock(mutex_);
    held_ = false;
    holder_ = {};
    quietly &= wanted_ == 0;
  }
  if (!quietly) changed_.notify_all();
}

}  // namespace kolo
