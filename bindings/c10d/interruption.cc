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

void wait_interruptibly(Work& work, Clock::time_point until) {
  const auto check = interruption_check.load();
  if (check == nullptr) {
    (void)work.wait(until);
    return;
  }
  while (!work.done()) {
    const Clock::time_point now = Clock::now();
    if (now >= until) return;
    (void)work.wait(std::min(until, now + kBetweenChecks));
    if (!work.done()) check();
  }
}

}  // namespace kolo::c10d_binding
