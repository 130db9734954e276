// What waits must know of a host language: Python's handlers of signals (Ctrl-C) run only when the
// main thread returns to the interpreter, and a thread that returns to an interpreter that has
// ended is ended by a signal. Exported for bindings/python, not installed. Any thread.
#pragma once

#include <kolo/export.h>

#include <chrono>
#include <functional>

namespace kolo::c10d_binding {

/// `check` is called from time to time by a thread that waits for a work; what it throws ends the
/// wait, and the operation goes on. Null: no check.
KOLO_API void set_interruption_check(void (*check)());

/// `unlocked` runs what it is given, without the host's lock (Python's GIL) if this thread has it.
/// Null: there is no such lock.
KOLO_API void set_unlocked(void (*unlocked)(const std::function<void()>&));
/// For what may wait for a thread that needs the host's lock: c10d's calls that test a work or ask
/// for its future come with the lock.
void run_unlocked(const std::function<void()>& call);

/// The host's interpreter is about to end: from here on, each other thread that comes to
/// stay_if_host_ends() stays there until the process ends, but those that the end waits for.
KOLO_API void set_host_ends();
void stay_if_host_ends();
/// Whether stay_if_host_ends() would stay.
bool must_stay();
/// This thread is one that the end waits for.
void end_waits_for_this_thread();

using WaitUntil = std::function<bool(std::chrono::steady_clock::time_point)>;
/// Waits until a work is done, or until `until`. `wait_until` waits for it until a moment and
/// returns whether it is done. Throws what the check throws.
KOLO_API void wait_interruptibly(const WaitUntil& wait_until,
                                 std::chrono::steady_clock::time_point until);

}  // namespace kolo::c10d_binding
