#include "tools/run/signals.h"

#include <array>

namespace kolo::run {
namespace {

constexpr std::array<int, 8> kSignals = {SIGINT,  SIGTERM, SIGHUP,  SIGUSR1,
                                         SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};

}  // namespace

sigset_t signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) {
    struct sigaction now = {};
    const bool is_ignored = ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
    if (!is_ignored) sigaddset(&set, signal);
  }
  return set;
}

void block_signals() {
  // If SIGCHLD is ignored, waitpid cannot return how a child ended.
  ::signal(SIGCHLD, SIG_DFL);
  const sigset_t set = signal_set();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void stop_this_process(bool by_terminal) {
  if (!by_terminal) {
    ::raise(SIGSTOP);
    return;
  }
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace kolo::run
