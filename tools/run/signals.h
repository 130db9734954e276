// Signals: which signals kolo-run handles, and how it stops itself. Used by kolo-run's main thread.
#pragma once

#include <chrono>
#include <csignal>

namespace kolo::run {

/// timeout(1) and some shells signal both kolo-run and its group, so a signal comes twice within
/// this time.
inline constexpr std::chrono::seconds kSameSignal(1);

/// All handled signals, except those that the caller of kolo-run has set to be ignored, as nohup
/// does: once blocked, the kernel would deliver even these to a signalfd.
sigset_t signal_set();

/// Call it before any thread is started, so that the signals reach the job alone.
void block_signals();

/// `by_terminal`: stops only if a shell could continue kolo-run, which the kernel decides. It does
/// not stop the first process of a container.
void stop_this_process(bool by_terminal);

}  // namespace kolo::run
