// Lets a host language end a wait: Python's handlers of signals (Ctrl-C) run only when the main
// thread returns to the interpreter. Exported for bindings/python, not installed. Any thread.
#pragma once

#include <kolo/export.h>

#include <chrono>
#include <functional>

namespace kolo::c10d_binding {

/// `check` is called from time to time by a thread that waits for a work; what it throws ends the
/// wait, and the operation goes on. Null: no check.
KOLO_API void set_interruption_check(void (*check)());

using WaitUntil = std::function<bool(std::chrono::steady_clock::time_point)>;
/// Waits until a work is done, or until `until`. `wait_until` waits for it until a moment and
/// returns whether it is done. Throws what the check throws.
KOLO_API void wait_interruptibly(const WaitUntil& wait_until,
                                 std::chrono::steady_clock::time_point until);

}  // namespace kolo::c10d_binding
