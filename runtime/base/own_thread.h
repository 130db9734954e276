// own_thread(): starts one of kolo's own threads. The program's signal handlers must not run there:
// a handler that calls exit() on kolo's thread would wait for that very thread.
#pragma once

#include <csignal>
#include <functional>
#include <thread>

namespace kolo {

/// Blocks all signals of the calling thread except those of faults and profilers. Threads started
/// meanwhile, also by libraries, inherit the mask for good.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_ = {};
};

/// Runs `body` on a new thread, with signals blocked (BlockedSignals) and inside an InCall.
std::thread own_thread(std::function<void()> body);

}  // namespace kolo
