#include "runtime/base/own_thread.h"

#include "runtime/base/in_call.h"

#include <pthread.h>

#include <utility>

namespace kolo {

BlockedSignals::BlockedSignals() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int kept : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF})
    sigdelset(&blocked, kept);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

BlockedSignals::~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::thread own_thread(std::function<void()> body) {
  const BlockedSignals blocked;
  return std::thread([body = std::move(body)] {
    const InCall in_call;
    body();
  });
}

}  // namespace kolo
