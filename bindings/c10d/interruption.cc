#include "bindings/c10d/interruption.h"

#include <algorithm>
#include <atomic>

namespace kolo::c10d_binding {
namespace {

using Clock = std::chrono::steady_clock;

/// How late Ctrl-C may come; rare enough to cost nothing.
constexpr std::chrono::milliseconds kBetweenChecks{100};

std::atomic<void (*)()> interruption_check = nullptr;

}  // namespace

void set_interruption_check(void (*check)()) { interruption_check = check; }

void wait_interruptibly(const WaitUntil& wait_until, Clock::time_point until) {
  const auto check = interruption_check.load();
  if (check == nullptr) {
    wait_until(until);
    return;
  }
  Clock::time_point now = Clock::now();
  while (!wait_until(std::min(until, now + kBetweenChecks))) {
    now = Clock::now();
    if (now >= until) return;
    check();
  }
}

}  // namespace kolo::c10d_binding
