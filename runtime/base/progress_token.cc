#include "runtime/base/progress_token.h"

#include "runtime/base/check.h"

namespace kolo {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

template <class Condition>
void wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                TimePoint until, Condition condition) {
  if (until == TimePoint::max()) {
    changed.wait(lock, condition);
  } else {
    changed.wait_until(lock, until, condition);
  }
}

}  // namespace

std::optional<ProgressToken::Hold> ProgressToken::take(State as) {
  State expected = State::kFree;
  if (!state_.compare_exchange_strong(expected, as)) return std::nullopt;
  holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return Hold(*this);
}

std::optional<ProgressToken::Hold> ProgressToken::acquire_background() {
  std::unique_lock lock(mutex_);
  const auto begun = std::chrono::steady_clock::now();
  const auto let_others = [&] {
    if (is_starved_.exchange(false)) changed_.notify_all();
  };
  while (state_ != State::kClosed) {
    if (wanted_ == 0 || is_starved_) {
      if (auto hold = take(State::kBackground)) {
        let_others();
        return hold;
      }
    }
    // A quiet release wakes no thread, so this wait is bounded.
    changed_.wait_for(lock, kPatience);
    is_starved_ = std::chrono::steady_clock::now() - begun >= kLongest;
  }
  let_others();
  return std::nullopt;
}

std::optional<ProgressToken::Hold> ProgressToken::try_acquire() {
  return is_starved_.load(std::memory_order_relaxed) ? std::nullopt : take(State::kOther);
}

std::optional<ProgressToken::Hold> ProgressToken::acquire_for_waiter(TimePoint until) {
  if (auto hold = try_acquire()) return hold;
  std::unique_lock lock(mutex_);
  if (const State state = state_; state == State::kOther || state == State::kClosed)
    return std::nullopt;
  ++wanted_;
  const auto settled = [&] {
    return state_ == State::kClosed || (state_ != State::kBackground && !is_starved_);
  };
  if (is_starved_) changed_.notify_all();
  wait_until(changed_, lock, until, settled);
  auto hold = take(State::kOther);
  --wanted_;
  if (!hold) changed_.notify_all();
  return hold;
}

std::optional<ProgressToken::Hold> ProgressToken::acquire(TimePoint until) {
  std::unique_lock lock(mutex_);
  ++wanted_;
  std::optional<Hold> hold;
  wait_until(changed_, lock, until, [&] {
    if (auto taken = take(State::kOther)) hold.emplace(*std::move(taken));
    return hold || state_ == State::kClosed;
  });
  --wanted_;
  return hold;
}

void ProgressToken::close() {
  assert_held();
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kClosed;
  }
  changed_.notify_all();
}

void ProgressToken::assert_held() const {
  KOLO_CHECK(holder_.load(std::memory_order_relaxed) == std::this_thread::get_id());
}

void ProgressToken::release(bool quietly) {
  holder_.store({}, std::memory_order_relaxed);
  // Sequentially consistent: a waiter first raises wanted_ and then reads state_, while this thread
  // first writes state_ and then reads wanted_. So at least one of them sees the other's write.
  if (state_.load(std::memory_order_relaxed) != State::kClosed) state_.store(State::kFree);
  if (quietly && wanted_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

}  // namespace kolo
