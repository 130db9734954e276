#include "bindings/c10d/interruption.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace kolo::c10d_binding {
namespace {

using Clock = std::chrono::steady_clock;

/// How late Ctrl-C may come; rare enough to cost nothing.
constexpr std::chrono::milliseconds kBetweenChecks{100};

std::atomic<void (*)()> interruption_check = nullptr;
std::atomic<void (*)(const std::function<void()>&)> unlocked_of_host = nullptr;
std::atomic<std::thread::id> ending = {};  ///< thread that ends the host
thread_local bool is_waited_for = false;

}  // namespace

void set_interruption_check(void (*check)()) { interruption_check = check; }

void set_unlocked(void (*unlocked)(const std::function<void()>&)) { unlocked_of_host = unlocked; }

void run_unlocked(const std::function<void()>& call) {
  const auto unlocked = unlocked_of_host.load();
  unlocked == nullptr ? call() : unlocked(call);
}

void set_host_ends() { ending = std::this_thread::get_id(); }

bool must_stay() {
  const std::thread::id end = ending;
  return !is_waited_for && end != std::thread::id() && end != std::this_thread::get_id();
}

void stay_if_host_ends() {
  while (must_stay()) ::pause();
}

void end_waits_for_this_thread() { is_waited_for = true; }

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
