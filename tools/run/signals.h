// Signals: those that kolo-run acts upon, and what it does to be stopped. Used by its main thread.
#pragma once

#include <chrono>
#include <csignal>

namespace kolo::run {

/// timeout(1) and some shells send a signal to kolo-run and to its group, so that it comes twice.
inline constexpr std::chrono::seconds kSameSignal(1);

/// All but those that whoever started kolo-run wants ignored, as nohup does: the kernel keeps even
/// these for a descriptor, once they are blocked.
sigset_t signal_set();

/// To be called before any thread is started, so that the signals reach the job alone.
void block_signals();

/// By the terminal only where a shell could let it go on, which the kernel knows; the first process
/// of a container it does not stop at all.
void stop_this_process(bool by_terminal);

}  // namespace kolo::run
